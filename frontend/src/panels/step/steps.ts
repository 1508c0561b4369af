/** Steps as parts of a bar. */
import { isInsufficient } from '../../api/findings.svelte';
import type { IdleGap, StepBreakdown, StepPart, StepReport, StepTime } from '../../api/types';
import { HOST_KINDS, hostKindHelp, isHostKind } from '../../names/causes';
import { barPart, idlePart, partKey, styleOf } from '../../names/parts';
import { uniqueKeys } from '../../table/keys';
import type { HashChange } from '../../host/nav.svelte';
import { withShift, toStretch } from '../../links/addresses';
import { duration } from '../../widgets/format';

/** As parts of a bar: kernels first, the largest in front. With insufficient coverage idle time has no causes. */
export function barParts(parts: StepPart[]) {
  const total = (some: StepPart[]) => some.reduce((us, { time_us }) => us + time_us, 0);
  const withProfiler = `${duration(total(parts))} while profiling`;
  const unexplained = isInsufficient() ? parts.filter(({ kind }) => kind === 'idle') : [];
  const bars = parts
    .filter((part) => !unexplained.includes(part))
    .toSorted((a, b) => Number(b.kind === 'gpu') - Number(a.kind === 'gpu') || b.time_us - a.time_us)
    .map((part) => {
      const [label, color, title] = styleOf(part);
      return {
        ...barPart(partKey(part), label, part.time_us, color, title),
        idle: !['gpu', 'host'].includes(part.kind),
        beyond: part.kind === 'profiler' ? withProfiler : undefined,
      };
    });
  const idle = { ...idlePart(total(unexplained)), beyond: undefined };
  return idle.value > 0 ? [...bars, idle] : bars;
}

/** "59.6 ms per step"; without steps the length of the span. */
export const stepText = ({ step_us, steps }: StepTime): string =>
  duration(step_us) + (steps > 0 ? ' per step' : '');

/** key: of a column. */
export function toStep(report: StepReport, key: string, event: Event): HashChange {
  const step = report.steps.find((row) => uniqueKeys(report.steps, stepKey).get(row) === key);
  return withShift(event) && step
    ? toStretch(step.start_us, step.start_us + step.wall_us)
    : { panel: 'step', row: `steps:${key}` };
}

const stepKey = (row: StepBreakdown) => row.step ?? '';

/** One column per step, stacked like the bar of the mean step. */
export function stackedSteps(report: StepReport) {
  const rank = new Map(barParts(report.mean_parts).map(({ key }, i) => [key, i]));
  const keys = uniqueKeys(report.steps, stepKey);
  return report.steps.map((row) => {
    return {
      key: keys.get(row)!,
      label: row.step?.replace('ProfilerStep', '') ?? '',
      value: row.wall_us,
      parts: barParts(row.parts).sort((a, b) => rank.get(a.key)! - rank.get(b.key)!),
      marked: !!row.slow_because,
      title:
        `${row.step}: ${duration(row.wall_us)}${row.slow_because ? `, slow: ${row.slow_because}` : ''}` +
        (row.parts[0]?.kind === 'unknown' ? ', GPU records are missing' : ''),
    };
  });
}

/** Idle time by cause, without causes that take none. */
export const causeParts = (idle: IdleGap['idle']) =>
  Object.entries(idle).flatMap(([field, us]) => {
    const kind = field.replace('_us', '');
    if (us <= 0 || !isHostKind(kind)) return [];
    return { ...barPart(kind, HOST_KINDS[kind][0], us, HOST_KINDS[kind][1], hostKindHelp(kind)), idle: true };
  });
