/** What other panels may show of this one. */
export { default as Categories } from './Categories.svelte';
export const loadGenerated = () => import('./Generated.svelte');
