/** Findings without those that the user switched off. The choice is personal, so it is kept in the browser. */
import { data } from './data.svelte';
import type { CoverageRow, Finding, GpuUtilization } from './types';

const KEY = 'torch_compile.findings_off';

/** "run rule" → why it is switched off there. */
let off = $state.raw<Record<string, string>>(read());

function read(): Record<string, string> {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(KEY) ?? '{}');
    return stored && typeof stored === 'object' ? (stored as Record<string, string>) : {};
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

const level = () => data.span.value?.coverage.level ?? 'complete';

/** Whether all of the selected span was recorded and read. If not, the missing part may hold a finding. */
export const isWhole = (): boolean => level() === 'complete';

/** Whether so much is missing that nothing is said of causes and fixes. */
export const isInsufficient = (): boolean => level() === 'insufficient';

/** The first of the rows that are as bad as any. */
export function worstMissing(): CoverageRow | undefined {
  const { rows, level } = data.span.value?.coverage ?? { rows: [] };
  return rows.find((row) => row.level === level);
}

/** The steps of which it is unknown what a GPU did. */
export const stepsWithoutRecords = (): string[] =>
  (data.span.value?.coverage.rows ?? [])
    .filter(({ kind }) => kind === 'gpu_records' || kind === 'times')
    .flatMap(({ steps }) => steps);

/** Percent of a step: why a GPU idles for less is not asked. */
const LEAST_IDLE = 2;
export const explainsIdle = ({ mean }: GpuUtilization): boolean =>
  !isInsufficient() && 100 - (mean?.busy_percent ?? 0) >= LEAST_IDLE;

export function nothingFound(): string {
  if (isInsufficient()) return 'Too little was recorded to find anything';
  return isWhole() ? 'No findings' : 'No findings in the part that could be read';
}

/** null while nothing is known. */
export function findingsOn(): Finding[] | null {
  return data.findingsHere?.findings.filter((finding) => reasonOff(finding) === undefined) ?? null;
}
