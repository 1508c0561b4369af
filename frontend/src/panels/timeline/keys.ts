/** The timeline's keys, as its help lists them. */
export const KEYS = [
  ['W S  + −', 'zoom in and out'],
  ['A D', 'earlier, later'],
  ['[ ]', 'previous, next step'],
  ['H  0', 'where it opened; all of the time'],
  ['← → ↑ ↓', 'from slice to slice'],
  ['Enter  Esc', 'into the details; close them'],
  ['F Z', 'zoom to it; so does a double click'],
  ['M', 'measure it, or nothing'],
  ['G', 'flame graph of it, or of what is in view'],
  ['L B', 'follow launch ↔ kernel, forward ↔ backward'],
  ['/  N  ⇧N', 'search; next, previous'],
  ['T', 'list what is in view'],
  ['PgUp PgDn', 'scroll the lanes'],
  ['?', 'this list'],
] as const;
