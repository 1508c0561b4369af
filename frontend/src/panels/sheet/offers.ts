/** What other panels may show of a sheet. */
export { default as Sheet } from './Sheet.svelte';
export { default as SheetContent } from './SheetContent.svelte';
export { default as SheetTable } from './SheetTable.svelte';
export { default as SheetDetails } from './SheetDetails.svelte';
export { default as SheetRows } from './SheetRows.svelte';
