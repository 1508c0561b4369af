import { afterEach, expect, it, vi } from 'vitest';
import { ApiError, fetchAnswer } from '../../src/api/client';

const answer = (status: number, body: unknown) => Response.json(body, { status });
const signal = () => new AbortController().signal;

afterEach(() => vi.unstubAllGlobals());

function serve(...answers: (Response | Error)[]) {
  const fetched = vi.fn<(url: string) => Promise<Response>>(async () => {
    const next = answers.shift()!;
    if (next instanceof Error) throw next;
    return next;
  });
  vi.stubGlobal('fetch', fetched);
  return fetched;
}

it('polls while the server reads, and tells how far it is', async () => {
  const progress = { file: 'x', bytes_read: 1, bytes_total: 2, events: 3, seconds_left: null };
  const fetched = serve(answer(202, { progress }), answer(200, { span: '7' }));
  const heard: unknown[] = [];
  const span = await fetchAnswer('span', { run: 'a b', worker: 'w', span: '7' }, signal(), (p) =>
    heard.push(p),
  );
  expect(span).toEqual({ span: '7' });
  expect(heard).toEqual([progress]);
  expect(fetched.mock.calls[0]![0]).toBe('span?run=a+b&worker=w&span=7');
});

it('hands on what the server says about an error', async () => {
  const error = { code: 'unreadable', message: 'cut in half', file: 'x.gz', next_step: 'record again' };
  serve(answer(422, { error }));
  await expect(fetchAnswer('runs', {}, signal())).rejects.toMatchObject({
    code: 'unreadable',
    message: 'cut in half',
    file: 'x.gz',
    nextStep: 'record again',
  });
});

it('says when the server is gone, and when it answers nonsense', async () => {
  serve(
    new TypeError('Failed to fetch'),
    new Response('<html>', { status: 502 }),
    new Response('', { status: 200, headers: { 'Content-Type': 'application/json' } }),
  );
  await expect(fetchAnswer('runs', {}, signal())).rejects.toMatchObject({ code: 'server_gone' });
  await expect(fetchAnswer('runs', {}, signal())).rejects.toThrow('TensorBoard returned status 502');
  await expect(fetchAnswer('runs', {}, signal())).rejects.toBeInstanceOf(ApiError);
});

it('stops asking when something else was chosen', async () => {
  const controller = new AbortController();
  const fetched = serve(answer(202, { progress: {} }), answer(200, {}));
  const asked = fetchAnswer('span', { run: 'r', worker: 'w', span: 's' }, controller.signal, () =>
    controller.abort(),
  );
  await expect(asked).rejects.toMatchObject({ name: 'AbortError' });
  expect(fetched).toHaveBeenCalledTimes(1);
});
