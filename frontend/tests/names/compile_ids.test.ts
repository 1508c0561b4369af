import { expect, it } from 'vitest';
import { functionName } from '../../src/names/compile_ids';

it('tells what follows a graph break by the function and the line', () => {
  expect(functionName('torch_dynamo_resume_in_forward_at_26')).toBe('forward after line 26');
  expect(functionName('forward')).toBe('forward');
});
