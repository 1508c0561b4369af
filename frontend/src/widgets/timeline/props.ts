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
  /** Id of an element that tells in words what is in view. */
  describedBy: string;
  lanes: LaneLook[];
  arrangement: Arrangement;
  all: View;
  /** Where it opens, and where it goes when this changes. */
  target: View;
  strip: Strip;
  fetch: Fetch;
  /** Colours of the slices, by number. */
  colors: Painted[];
  /** Stretches that stand on the minimap and whose ends are drawn through all lanes. */
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
  /** What is shown changed, or more of it arrived; busy: more is to come. */
  onseen: (read: Reader, laid: LaidLane[], busy: boolean) => void;
  onselect: (slice: Slice | null, chosen: boolean) => void;
  onrange: (range: View | null) => void;
  /** Null: it works again. */
  onfail: (error: unknown) => void;
  /** Other keys. True: it was one. */
  onkey: (key: string) => boolean;
}
