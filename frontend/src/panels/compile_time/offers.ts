/** What other panels may show of this one. */
export { default as FunctionTimes } from './FunctionTimes.svelte';
