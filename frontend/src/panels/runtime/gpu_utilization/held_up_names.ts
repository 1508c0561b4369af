/** What held a GPU up, by name. */
import type { HeldUp } from '../../../api/types';
import { HOST_CAUSES } from '../../../names/host_causes';
import { graphName } from '../../../names/kernel_names';

export const heldUpKey = (r: HeldUp) => [r.device, r.cause, r.name, r.file, r.line].join(',');
export const heldUpName = (r: HeldUp) => (r.name ? graphName(r.name) : HOST_CAUSES[r.cause][0]);
