import { nav } from '../host/nav.svelte';
import { Resource } from './resource.svelte';
import { select, type Selection } from './selection';

/** Everything the panels look at: what the logdir holds, what is selected, and its two halves. */
class Data {
  runs = new Resource('runs');
  compile = new Resource('compile');
  span = new Resource('span');
  findings = new Resource('findings');
  selection: Selection = $derived(
    this.runs.value
      ? select(this.runs.value, { run: nav.get('run'), worker: nav.get('worker'), span: nav.get('span') })
      : { run: null, worker: null, span: null, missing: null },
  );

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

  /** After the halves that they are about: nothing on screen waits for them. */
  loadFindings(): void {
    const { run, worker, span } = this.selection;
    const ready = span ? this.span.value : worker?.has_compile;
    if (!run || !worker || !ready) return this.findings.clear();
    void this.findings.ask({ run: run.run, worker: worker.worker, span: span?.span ?? '' });
  }
}

export const data = new Data();
