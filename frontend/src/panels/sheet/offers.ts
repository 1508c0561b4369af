/** What other panels may show of a sheet. */
export { default as Sheet } from './Sheet.svelte';
