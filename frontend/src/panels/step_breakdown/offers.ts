/** What other panels may show of this one. */
export { barParts, stackedSteps } from './steps';
