import type { Arrangement, LaidLane, LaneLook } from './lanes';
import type { Painted } from './ink';
import type { Arrow } from './paint';
import type { Reader } from './read';
import type { Fetch, Slice } from './tiles';
import type { View } from '../canvas/view';

/** What the strip above shows: a stretch, and moments of what was searched for and what was pinned. */
export interface Strip {
  view: View;
  ticks: number[];
  pins: number[];
}

export interface TimelineProps {
  label: string;
  /** Id of an element that describes in words what is in view. */
  describedBy: string;
  lanes: LaneLook[];
  arrangement: Arrangement;
  all: View;
  /** The view when it opens, and when this changes. */
  target: View;
  strip: Strip;
  fetch: Fetch;
  /** Colours of the slices, by number. */
  colors: Painted[];
  /** Intervals on the minimap whose ends are drawn through all lanes. */
  marks: View[];
  /** The lanes that are drawn in the minimap. */
  map: number[];
  selected: Slice | null;
  arrows: Arrow[];
  range: View | null;
  /** Dragging chooses a range. */
  selecting: boolean;
  nameOf: (name: string) => string;
  describe: (slice: Slice) => string[];
  scale: (value: number, lane: LaneLook) => string;
  onarrange: (arrangement: Arrangement) => void;
  /** The view came to rest; after a jump the place before is worth returning to. */
  onrest: (view: View, jumped: boolean) => void;
  /** What is shown changed, or more data arrived; busy: more requests are pending. */
  onseen: (read: Reader, laid: LaidLane[], busy: boolean) => void;
  onselect: (slice: Slice | null, chosen: boolean) => void;
  onrange: (range: View | null) => void;
  /** Null: it works again. */
  onfail: (error: unknown) => void;
  /** Other keys. True: it was one. */
  onkey: (key: string) => boolean;
}
