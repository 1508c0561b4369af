/** What other panels may show of this one. */
export { default as StepsPicture } from './StepsPicture.svelte';
