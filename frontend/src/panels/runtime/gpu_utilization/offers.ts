/** What other panels may show of this one. */
export { heldUpKey, heldUpName } from './held_up_names';
