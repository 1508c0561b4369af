/** Highlighting and comparing away from the page: megabytes of code must not stop it. */
import { diffRows } from './diff';
import { highlight } from './highlight';
import type { CodeAnswer, CodeTask } from './service';

self.onmessage = ({ data }: MessageEvent<CodeTask>) => {
  const answer = (message: CodeAnswer) => self.postMessage(message);
  try {
    if (data.what === 'highlight') answer({ tokens: highlight(data.text, data.language) });
    else answer({ rows: diffRows(data.left, data.right, (fraction) => answer({ fraction })) });
  } catch (cause) {
    answer({ error: String(cause) });
  }
};
