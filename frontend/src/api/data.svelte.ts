import { nav } from '../host/nav.svelte';
import { fetchAboutSpan, fetchCompile, fetchRuns } from './client';
import { Resource } from './resource.svelte';
import { select, type Selection } from './selection';
import type { Compile, Findings, Runs, Span } from './types';

/** Everything the panels look at: what the logdir holds, what is selected, and its two halves. */
class Data {
  runs = new Resource<Runs>();
  compile = new Resource<Compile>();
  span = new Resource<Span>();
  findings = new Resource<Findings>();
  selection: Selection = $derived(
    this.runs.value
      ? select(this.runs.value, { run: nav.get('run'), worker: nav.get('worker'), span: nav.get('span') })
      : { run: null, worker: null, span: null, missing: null },
  );

  /** Asks again for everything; what is on screen stays until the answers are there. */
  async refresh(): Promise<void> {
    await this.runs.load('runs', fetchRuns);
    this.loadCompile();
    this.loadSpan();
  }

  loadCompile(): void {
    const { run, worker } = this.selection;
    if (!run || !worker?.has_compile) return this.compile.clear();
    void this.compile.load(`${run.run}\n${worker.worker}`, (signal) =>
      fetchCompile(run.run, worker.worker, signal),
    );
  }

  loadSpan(): void {
    const { run, worker, span } = this.selection;
    if (!run || !worker || !span) return this.span.clear();
    const ids = { run: run.run, worker: worker.worker, span: span.span };
    void this.span.load(Object.values(ids).join('\n'), (signal, progress) =>
      fetchAboutSpan<Span>('span', ids, signal, progress),
    );
  }

  /** After the halves that they are about: nothing on screen waits for them. */
  loadFindings(): void {
    const { run, worker, span } = this.selection;
    const ready = span ? this.span.value : worker?.has_compile;
    if (!run || !worker || !ready) return this.findings.clear();
    const ids = { run: run.run, worker: worker.worker, span: span?.span ?? '' };
    void this.findings.load(Object.values(ids).join('\n'), (signal, progress) =>
      fetchAboutSpan<Findings>('findings', ids, signal, progress),
    );
  }
}

export const data = new Data();
