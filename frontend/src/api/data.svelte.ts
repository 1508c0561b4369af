import { nav } from '../host/nav.svelte';
import type { SpanIds } from './client';
import { Resource } from './resource.svelte';
import { rankOf, select, type Selection } from './selection';
import type { Findings, JobReport, Compile, Span } from './types';

/** Up to this size, the traces of a job are read without a request of the user. */
const UNASKED_BYTES = 500e6;

/** Everything the panels look at: what the logdir holds, what is selected, and its two halves. */
class Data {
  runs = new Resource('runs');
  compile = new Resource('compile');
  span = new Resource('span');
  findings = new Resource('findings');
  /** The panel still waits for what it draws: findings are asked for behind it. */
  drawing = $state.raw(false);
  /** The ranks of the run together. Every trace of the job is read for it. */
  job = new Resource('job');
  /** The same findings, less what only follows from the job's, which come first. */
  rankFindings = new Resource('rank_findings');
  selection: Selection = $derived(
    this.runs.value
      ? select(this.runs.value, { run: nav.get('run'), worker: nav.get('worker'), span: nav.get('span') })
      : { run: null, worker: null, span: null, missing: null },
  );

  /** The ids of the selection in requests; span: "" if there is none. */
  ids: SpanIds | null = $derived.by(() => {
    const { run, worker, span } = this.selection;
    return run && worker && { run: run.run, worker: worker.worker, span: span?.span ?? '' };
  });

  /** What is known of the job that the selected span belongs to, without asking. */
  jobHere: JobReport | null = $derived.by(() => {
    const { run, worker, span } = this.selection;
    const job = this.job.value;
    const here = job && worker && span && rankOf(job.map, worker.worker, span.span) !== null;
    return here && run?.run === this.jobIds?.run ? job : null;
  });
  /** By what the server knows the job that was asked for last. */
  jobIds = $state.raw<{ run: string; span: string } | null>(null);

  /** As much as is known of the selected span and of its job. */
  findingsHere: Findings | null = $derived(this.rankFindings.value ?? this.findings.value);
  /** Bytes to read for the job if that is too much to be read without a request; otherwise 0. */
  jobLeftOut: number = $derived.by(() => {
    const bytes = this.selection.run?.job_bytes ?? 0;
    return this.jobHere || bytes <= UNASKED_BYTES ? 0 : bytes;
  });

  /** Asks again for everything; what is on screen stays until the answers are there. */
  async refresh(): Promise<void> {
    await this.runs.ask({});
    this.loadCompile();
    this.loadSpan();
  }

  loadCompile(): void {
    const { run, worker } = this.selection;
    if (!run || !worker?.has_compile) return this.compile.clear();
    void this.compile.ask({ run: run.run, worker: worker.worker });
  }

  loadSpan(): void {
    if (!this.ids?.span) return this.span.clear();
    void this.span.ask(this.ids);
  }

  /** Of another rank of the same job it is the same question. */
  loadJob(): void {
    const { run, span } = this.selection;
    if (!run || run.ranks < 2) return this.job.clear();
    const isSameJob = this.jobIds?.run === run.run && this.job.value?.map.spans.includes(span?.span ?? '');
    if (!isSameJob) this.jobIds = { run: run.run, span: span?.span ?? '' };
    void this.job.ask(this.jobIds!);
  }

  /** Behind everything that is on screen, and only if it is soon done. */
  loadJobUnasked(): void {
    const bytes = this.selection.run?.job_bytes ?? 0;
    if (bytes > 0 && bytes <= UNASKED_BYTES && this.findings.value) this.loadJob();
  }

  loadRankFindings(): void {
    const { worker, span } = this.selection;
    const job = this.jobHere;
    const rank = job && worker && span && rankOf(job.map, worker.worker, span.span);
    if (rank === null || rank === undefined || !this.jobIds) return this.rankFindings.clear();
    void this.rankFindings.ask({ ...this.jobIds, rank: String(rank) });
  }

  /** After the halves that they are about: nothing on screen waits for them. */
  loadFindings(): void {
    const { worker, span } = this.selection;
    if (this.drawing) return;
    const ready = span ? this.span.value : worker?.has_compile;
    if (!this.ids || !ready) return this.findings.clear();
    void this.findings.ask(this.ids);
  }
}

export const data = new Data();

/** Count the sites of graph breaks; null if neither a log nor stacks in the trace show them. */
export function countSites(compile: Compile | null, span: Span | null): number | null {
  if (!compile && !span?.graph_break_costs) return null;
  return (span?.graph_break_sites ?? compile?.reported_sites ?? []).length;
}
