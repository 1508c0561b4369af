import { nav } from '../host/nav.svelte';
import { Resource } from './resource.svelte';
import { ranksRecorded, select, type Selection } from './selection';
import type { JobReport } from './types';

/** Everything the panels look at: what the logdir holds, what is selected, and its two halves. */
class Data {
  runs = new Resource('runs');
  compile = new Resource('compile');
  span = new Resource('span');
  findings = new Resource('findings');
  /** The ranks of the run together. Every trace of the job is read for it: asked for where somebody looks. */
  job = new Resource('job');
  selection: Selection = $derived(
    this.runs.value
      ? select(this.runs.value, { run: nav.get('run'), worker: nav.get('worker'), span: nav.get('span') })
      : { run: null, worker: null, span: null, missing: null },
  );

  /** What is known of the job that the selected span belongs to, without asking. */
  jobHere: JobReport | null = $derived.by(() => {
    const { run, worker, span } = this.selection;
    const job = this.job.value;
    const here = job?.by_rank.some((row) => row.worker === worker?.worker && row.span === span?.span);
    return here && run?.run === this.#jobRun ? job : null;
  });
  #jobRun = '';
  #jobSpan = '';

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
    const { run, worker, span } = this.selection;
    if (!run || !worker || !span) return this.span.clear();
    void this.span.ask({ run: run.run, worker: worker.worker, span: span.span });
  }

  /** Of another rank of the same job it is the same question. */
  loadJob(): void {
    const { run, span } = this.selection;
    if (!run || ranksRecorded(run) < 2) return this.job.clear();
    const again = run.run === this.#jobRun && this.job.value?.by_rank.some((row) => row.span === span?.span);
    this.#jobSpan = again ? this.#jobSpan : (span?.span ?? '');
    this.#jobRun = run.run;
    void this.job.ask({ run: run.run, span: this.#jobSpan });
  }

  /** After the halves that they are about: nothing on screen waits for them. */
  loadFindings(): void {
    const { run, worker, span } = this.selection;
    const ready = span ? this.span.value : worker?.has_compile;
    if (!run || !worker || !ready) return this.findings.clear();
    void this.findings.ask({ run: run.run, worker: worker.worker, span: span?.span ?? '' });
  }
}

export const data = new Data();
