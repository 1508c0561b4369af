import { hostWindow } from './parent';

const BOOTSTRAP = 'experimental.bootstrap';
const RELOADED = 'experimental.DataReloaded';

/**
 * Calls `reload` whenever TensorBoard's own data is reloaded (its button, or every 30 s with auto-reload).
 * The plugin offers one end of a MessageChannel; TensorBoard sends requests that want a reply by id.
 */
export function onReload(reload: () => void): void {
  const host = hostWindow();
  if (host === window) return;
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = (event: MessageEvent<unknown>) => {
    const message = parse(event.data);
    if (!message || message.isReply) return;
    if (message.type === RELOADED) reload();
    port1.postMessage(
      JSON.stringify({ type: message.type, id: message.id, payload: null, isReply: true, error: null }),
    );
  };
  host.postMessage(BOOTSTRAP, '*', [port2]);
}

interface Message {
  type: string;
  id: number;
  isReply: boolean;
}

function parse(data: unknown): Message | null {
  try {
    return JSON.parse(String(data)) as Message;
  } catch {
    return null;
  }
}
