/** What other panels may show of this one. */
export { default as Guards } from './Guards.svelte';
