/** What the timeline asks the server for. */
import { fetchBytes, type SpanIds } from '../../api/client';
import type { Fetch } from '../../widgets/timeline/tiles';

export function fetchTiles(ids: SpanIds): Fetch {
  return (from, to, width, lanes, signal) =>
    fetchBytes(
      'timeline_window',
      { ...ids, from: String(from), to: String(to), width: String(width), lanes: lanes.join() },
      signal,
    );
}
