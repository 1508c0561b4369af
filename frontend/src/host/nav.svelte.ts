import { formatHash, parseHash, PLUGIN, pluginOf, type Params } from './hash';
import { hostWindow } from './parent';

/** What a change of place means for the Back button: a new place, or the same one looked at differently. */
type Mode = 'push' | 'replace';
export type HashChange = Record<string, string | null>;

class Nav {
  #host = hostWindow();
  params = $state.raw<Params>(parseHash(this.#host.location.hash));

  /** Follows the address from now on. Returns a function that stops it. */
  start(): () => void {
    const follow = () => this.#follow();
    this.#host.addEventListener('popstate', follow);
    this.#host.addEventListener('hashchange', follow);
    return () => {
      this.#host.removeEventListener('popstate', follow);
      this.#host.removeEventListener('hashchange', follow);
    };
  }

  get(key: string): string {
    return this.params[key] ?? '';
  }

  go(change: HashChange, mode: Mode = 'push'): void {
    const params = this.with(change);
    const from = formatHash(this.params);
    if (formatHash(params) === from) return;
    this.params = params;
    this.#write(mode, from);
  }

  /** Takes a step back: Back must not lead through what was closed. Elsewhere it is a change of what is shown. */
  undo(change: HashChange): void {
    const { history } = this.#host;
    const from = (history.state as { from?: string } | null)?.from;
    if (from === formatHash(this.with(change))) history.back();
    else this.go(change, 'replace');
  }

  with(change: HashChange): Params {
    const params = { ...this.params };
    for (const [key, value] of Object.entries(change)) {
      if (value) params[key] = value;
      else delete params[key];
    }
    return params;
  }

  /** The full address of a place, so that links can be copied and opened in another browser tab. */
  href(change: HashChange): string {
    return this.#host.location.href.split('#', 1)[0] + formatHash(this.with(change));
  }

  #follow(): void {
    const hash = this.#host.location.hash;
    if (pluginOf(hash) !== PLUGIN) return;
    const params = parseHash(hash);
    // TensorBoard drops our parameters when the user comes back from another tab: we still know the place.
    if (Object.keys(params).length === 0) this.#write('replace');
    else if (formatHash(params) !== formatHash(this.params)) this.params = params;
  }

  #write(mode: Mode, from = ''): void {
    const { history, location } = this.#host;
    // Another tab is shown: the address is not ours now.
    if (this.#host !== window && pluginOf(location.hash) !== PLUGIN) return;
    const hash = formatHash(this.params);
    if (hash === location.hash) return;
    const url = location.pathname + location.search + hash;
    if (mode === 'push') history.pushState({ ...history.state, from }, '', url);
    else history.replaceState(history.state, '', url);
  }
}

export const nav = new Nav();
