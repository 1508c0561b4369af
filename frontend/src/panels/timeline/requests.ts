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

/** A small valid trace of a stretch of time. */
export function fetchTrimmed(ids: SpanIds & { from: string; to: string }): Promise<ArrayBuffer> {
  return fetchBytes('timeline_trim', ids, new AbortController().signal);
}
