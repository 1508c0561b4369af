/** What other panels may show of this one. */
export { barParts, stackedSteps, toStep } from './steps';
