/** The details of a compilation: what belongs to one of its rows, and torch's metrics as people read them. */
import type { Metric, Artifact, Compilation, CompilationDetails } from '../../../api/types';
import { bytes, count, duration } from '../../../widgets/format';

interface MetricGroup {
  title: string;
  metrics: Metric[];
}

/** By direction, by when it was written, then by what it is about; in the order in which they come. */
export function metricGroups(metrics: Metric[]): MetricGroup[] {
  const groups = new Map<string, Metric[]>();
  for (const metric of metrics) {
    const title = [
      metric.group[0]?.toUpperCase() + metric.group.slice(1),
      ...(metric.direction === 'backward' ? ['backward'] : []),
      ...(metric.runtime ? ['when it first ran'] : []),
      ...(metric.record > 0 ? [`record ${metric.record + 1}`] : []),
    ].join(', ');
    groups.set(title, [...(groups.get(title) ?? []), metric]);
  }
  return [...groups].map(([title, of]) => ({ title, metrics: of }));
}

/** A value in its unit if the name has one; long texts and lists as they are. */
export function metricText({ name, value }: Metric): string {
  let parsed: unknown;
  try {
    parsed = JSON.parse(value);
  } catch {
    return value;
  }
  if (typeof parsed === 'number') return numberText(name, parsed);
  if (typeof parsed === 'string') return unwrapped(parsed);
  return typeof parsed === 'object' && parsed !== null ? JSON.stringify(parsed, null, 2) : String(parsed);
}

function numberText(name: string, value: number): string {
  if (/start_time|end_time/.test(name)) return String(value);
  if (name.endsWith('_us')) return duration(value);
  if (name.endsWith('_ms')) return duration(value * 1e3);
  if (name.endsWith('_s')) return duration(value * 1e6);
  if (name.endsWith('_bytes')) return bytes(value);
  return Number.isInteger(value) ? count(value) : String(value);
}

/** Some fields hold JSON in a string. */
function unwrapped(text: string): string {
  if (!/^[[{]/.test(text)) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** The part of a compile id that belongs to one of its rows: the frame, or a backward that was compiled later. */
interface Own {
  artifacts: Artifact[];
  metrics: Metric[];
}

export function ownOf(details: CompilationDetails, { direction, part, parts }: Compilation): Own {
  const elsewhere = new Set(details.rows.map((row) => row.direction).filter((d) => d !== direction));
  // A backward that was compiled together with its forward has no row of its own.
  const ofRow = <T extends Artifact | Metric>(items: T[]) =>
    items.filter((item) => !elsewhere.has(item.direction));
  return {
    artifacts: ofPart(ofRow(details.artifacts), direction, part, parts),
    metrics: ofRow(details.metrics).filter((m) => parts < 2 || m.runtime || m.record === part),
  };
}

/** Graphs are numbered in the order of time, as the rows are; where both are not as many, nothing is left out. */
function ofPart(artifacts: Artifact[], direction: string, part: number, parts: number): Artifact[] {
  const graphs = [
    ...new Set(artifacts.flatMap((a) => (a.direction === direction && a.graph !== null ? [a.graph] : []))),
  ].sort((a, b) => a - b);
  if (parts < 2 || graphs.length !== parts) return artifacts;
  return artifacts.filter(({ graph }) => graph === null || graph === graphs[part]);
}
