/** What other panels may show of this one. */
export { default as StepColumns } from './StepColumns.svelte';
export { barParts, stepText } from './steps';
