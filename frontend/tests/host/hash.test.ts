import { expect, it } from 'vitest';
import { formatHash, parseHash, pluginOf } from '../../src/host/hash';

it('round-trips every character that ids and searches may hold', () => {
  const params = {
    run: 'a/b &=#%',
    row: 'kernels:0,void f<int>(x),',
    'search.kernels': 'µs “ ”',
    worker: '100%',
  };
  expect(parseHash(formatHash(params))).toEqual(params);
});

it('says where before what, and leaves out what is empty', () => {
  const hash = formatHash({
    panel: 'kernels',
    category: 'gemm',
    run: 'resnet18',
    worker: 'vm_424',
    span: '',
  });
  expect(hash).toBe(
    '#torch_compile&p.torch_compile.run=resnet18&p.torch_compile.worker=vm_424' +
      '&p.torch_compile.panel=kernels&p.torch_compile.category=gemm',
  );
});

it('reads only its own parameters', () => {
  const hash = '#torch_compile&tagFilter=x&p.other.run=1&p.torch_compile.run=mine';
  expect(parseHash(hash)).toEqual({ run: 'mine' });
  expect(pluginOf(hash)).toBe('torch_compile');
  expect(pluginOf('#scalars')).toBe('scalars');
  expect(pluginOf('')).toBe('');
});

it('survives an address that was edited by hand', () => {
  expect(parseHash('#torch_compile&p.torch_compile.run=50%&p.torch_compile.x')).toEqual({ run: '50%' });
});
