/** Findings, less those that somebody switched off: that is taste, so it is kept in the browser. */
import { data } from '../../api/data.svelte';
import type { Finding } from '../../api/types';
import type { Change } from '../../host/nav.svelte';
import { count, duration, percent, seconds, significant } from '../../widgets/format';

const KEY = 'torch_compile.findings_off';

/** "run rule" → why it is switched off there. */
let off = $state<Record<string, string>>(read());

function read(): Record<string, string> {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(KEY) ?? '{}');
    return found && typeof found === 'object' ? (found as Record<string, string>) : {};
  } catch {
    // Storage can be forbidden or hold what an older version wrote.
    return {};
  }
}

const keyOf = (finding: Finding) => `${data.selection.run?.run ?? ''} ${finding.rule}`;

export const reasonOff = (finding: Finding): string | undefined => off[keyOf(finding)];

/** With a reason the rule is off for this run; with null it is on again. */
export function switchOff(finding: Finding, reason: string | null): void {
  const others = Object.entries(off).filter(([key]) => key !== keyOf(finding));
  off = Object.fromEntries(reason === null ? others : [...others, [keyOf(finding), reason]]);
  try {
    localStorage.setItem(KEY, JSON.stringify(off));
  } catch {
    // Then it lasts until the page is closed.
  }
}

/** null while nothing is known. */
export function findingsOn(): Finding[] | null {
  return data.findings.value?.findings.filter((finding) => reasonOff(finding) === undefined) ?? null;
}

export function toFinding(finding: Finding): Change {
  return { panel: finding.panel === 'overview' ? null : finding.panel, row: finding.row };
}

/** "host_us_per_step" → "host", "166 µs a step" */
export function evidenceFacts(evidence: Finding['evidence']) {
  return Object.entries(evidence).map(([name, value]) => {
    const [, stem, unit = '', per] = /^(.+?)(?:_(us|s|percent))?(_per_step)?$/.exec(name)!;
    return { label: words(stem!), value: write(value, unit) + (per ? perStep() : '') };
  });
}

/** The numbers are for the whole span where there are no steps. */
const steps = () => data.span.value?.steps.length ?? 0;
const perStep = () => (steps() > 0 ? ' a step' : '');

/** "2.38 ms a step" */
export const saved = (us: number) => duration(us / Math.max(1, steps())) + perStep();

/** "gpu_utilization" → "GPU utilization" */
export const words = (name: string) => name.replaceAll('_', ' ').replace(/\bgpu\b/g, 'GPU');

function write(value: number, unit: string): string {
  if (unit === 'us') return duration(value);
  if (unit === 's') return seconds(value);
  if (unit === 'percent') return percent(value);
  return Number.isInteger(value) ? count(value) : significant(value);
}
