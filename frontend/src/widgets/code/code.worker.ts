/** Highlighting and comparing away from the page: megabytes of code must not stop it. */
import { diffRows } from './diff';
import { highlight } from './highlight';
import type { Answer, Question } from './service';

self.onmessage = ({ data }: MessageEvent<Question & { id: number }>) => {
  let answer: Answer;
  try {
    answer =
      data.what === 'highlight'
        ? { tokens: highlight(data.text, data.language) }
        : { rows: diffRows(data.left, data.right) };
  } catch (cause) {
    answer = { error: String(cause) };
  }
  self.postMessage({ id: data.id, ...answer });
};
