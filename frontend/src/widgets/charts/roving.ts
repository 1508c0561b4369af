const STEPS: Record<string, number> = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 };

/**
 * The parts of a picture that open something (`data-door`) are one stop of the Tab key: arrows, Home and End go from
 * part to part, and the one that was left is where Tab returns to. Not for an <svg> itself: one that is listened to for
 * focus is a stop of its own.
 */
export function rovingFocus(node: Element) {
  const all = () => [...node.querySelectorAll<HTMLElement | SVGElement>('[data-door]')];
  const mark = (current: Element | undefined) =>
    all().forEach((door) => door.setAttribute('tabindex', door === current ? '0' : '-1'));
  const settle = () => mark(all().find((door) => door.tabIndex === 0) ?? all()[0]);

  function onkeydown(event: Event) {
    const { key } = event as KeyboardEvent;
    const parts = all();
    const at = parts.indexOf(document.activeElement as HTMLElement);
    const to = key === 'Home' ? 0 : key === 'End' ? parts.length - 1 : at + (STEPS[key] ?? NaN);
    if (at < 0 || !parts[to]) return;
    parts[to].focus();
    event.preventDefault();
  }
  const onfocusin = ({ target }: Event) => all().includes(target as HTMLElement) && mark(target as Element);

  settle();
  const changes = new MutationObserver(settle);
  changes.observe(node, { childList: true, subtree: true });
  node.addEventListener('keydown', onkeydown);
  node.addEventListener('focusin', onfocusin);
  return { destroy: () => changes.disconnect() };
}
