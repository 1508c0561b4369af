/** Hands a trace to Perfetto's page. Nothing is loaded before the reader clicks, and the bytes stay in the browser. */
const PERFETTO = 'https://ui.perfetto.dev';
const PATIENCE_MS = 60_000;
const INSTEAD = 'Save the visible range, and open that file there.';

/** Opens the page and gives it the trace once it answers. Rejects when it may not open, or does not answer. */
export async function openInPerfetto(trace: Promise<ArrayBuffer>, title: string): Promise<void> {
  const page = window.open(PERFETTO);
  if (!page) throw new Error(`The browser blocked ${PERFETTO}. ${INSTEAD}`);
  const [buffer] = await Promise.all([trace, ready(page)]);
  page.postMessage({ perfetto: { buffer, title } }, PERFETTO);
}

/** Wait until the page answers PING with PONG. */
function ready(page: Window): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = (done: () => void) => {
      clearInterval(pinging);
      clearTimeout(timeout);
      removeEventListener('message', onmessage);
      done();
    };
    const onmessage = (event: MessageEvent) => {
      if (event.source === page && event.origin === PERFETTO && event.data === 'PONG') end(resolve);
    };
    const pinging = setInterval(() => page.postMessage('PING', PERFETTO), 100);
    const timeout = setTimeout(
      () => end(() => reject(new Error(`${PERFETTO} does not respond. ${INSTEAD}`))),
      PATIENCE_MS,
    );
    addEventListener('message', onmessage);
  });
}
