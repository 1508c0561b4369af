import { askAboutWorker } from '../../api/ask.svelte';
import type { Artifact, Compile, CompiledRegion, Span } from '../../api/types';
import { nav } from '../../host/nav.svelte';
import { codeKey, parseCodeKey, type CompileKey } from '../../names/compile_ids';
import { counterpart, mainArtifact } from './code_artifacts';

const idOf = (text: string) => (/^\d+$/.test(text) ? Number(text) : null);

/** The address of the code panel and the answers that it needs. The panel creates it once. */
export class CodeView {
  #compile: () => Compile;
  #span: Span | null;

  /** span: the data when the panel opened; the shown text must not change when more data arrives. */
  constructor(compile: () => Compile, span: Span | null) {
    this.#compile = compile;
    this.#span = span;
  }

  /** The compilation of the address; otherwise the one that ran most often, or the first that was recorded. */
  key: Required<CompileKey> | null = $derived.by(() => {
    const rows = this.#compile().compilations.filter((row) => !row.recovered);
    const ran = this.#span?.compiled_regions.reduce<CompiledRegion | null>(
      (most, region) => (most && most.calls >= region.calls ? most : region),
      null,
    );
    const first =
      rows.findLast((row) => row.compile_id === ran?.compile_id) ??
      rows[0] ??
      this.#compile().compilations[0];
    return (
      parseCodeKey(nav.get('code')) ?? (first && { compile_id: first.compile_id, epoch: first.epoch }) ?? null
    );
  });
  otherKey = $derived(parseCodeKey(nav.get('code2')));
  /** The run and worker of the other side where it is of another one. */
  elsewhere = $derived.by((): Record<string, string> =>
    nav.get('side2') ? { run: nav.get('run2'), worker: nav.get('worker2') } : {},
  );
  line = $derived(idOf(nav.get('line')));
  query = $derived(nav.get('find'));

  details = askAboutWorker('compilation', () => this.key && askFor(this.key));
  artifact: Artifact | null = $derived.by(() => {
    const id = idOf(nav.get('artifact'));
    const artifacts = this.details.value?.artifacts ?? [];
    return id === null
      ? mainArtifact(artifacts, nav.get('direction'))
      : (artifacts.find((a) => a.id === id) ?? null);
  });
  /** The address names an artifact that this compilation does not have. */
  gone = $derived(this.details.value !== null && nav.get('artifact') !== '' && this.artifact === null);
  text = askAboutWorker('artifact', () => this.artifact && { id: String(this.artifact.id) });

  /** The other compilation of a comparison, if it is another. */
  otherDetails = askAboutWorker('compilation', () =>
    this.otherKey && !this.#sameKey ? { ...askFor(this.otherKey), ...this.elsewhere } : null,
  );
  #sameKey = $derived(
    this.otherKey !== null &&
      this.key !== null &&
      !nav.get('side2') &&
      codeKey(this.otherKey) === codeKey(this.key),
  );
  other: Artifact | null = $derived.by(() => {
    if (!this.otherKey || !this.artifact) return null;
    const artifacts = (this.#sameKey ? this.details : this.otherDetails).value?.artifacts ?? [];
    const id = idOf(nav.get('artifact2'));
    return id === null ? counterpart(artifacts, this.artifact) : (artifacts.find((a) => a.id === id) ?? null);
  });
  otherText = askAboutWorker(
    'artifact',
    () => this.other && { id: String(this.other.id), ...this.elsewhere },
  );
}

function askFor({ compile_id, epoch }: Required<CompileKey>) {
  return { epoch: String(epoch), compile_id };
}
