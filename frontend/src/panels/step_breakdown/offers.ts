/** What other panels may show of this one. */
export { barParts, stepColumns } from './steps';
