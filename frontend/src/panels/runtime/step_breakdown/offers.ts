/** What other panels may show of this one. */
export { barParts, longest, stackedSteps, stepText, toStep } from './steps';
