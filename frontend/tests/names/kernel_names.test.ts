import { expect, test } from 'vitest';
import { nameParts, shortKernel } from '../../src/names/kernel_names';

const ADD =
  'void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)';
const COPY =
  'void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#7}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul>, 4>(int)';
const MUL =
  'void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::BUnaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> > >(at::TensorIteratorBase&)::{lambda(int)#1}>(int)';
const APPLY =
  'void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListMetadata<2>, at::native::(anonymous namespace)::TernaryOpScalarFunctor<float, 2>, float>(float)';

test.each([
  [ADD, 'CUDAFunctor_add<float> · vectorized_elementwise_kernel'],
  [COPY, 'direct_copy_kernel_cuda · unrolled_elementwise_kernel'],
  [MUL, 'BUnaryFunctor<float, float, float, MulFunctor<float> > · elementwise_kernel'],
  [APPLY, 'TernaryOpScalarFunctor<float, 2> · multi_tensor_apply_kernel'],
  [
    'void at::native::(anonymous namespace)::max_pool_forward_nchw<float, int>(int, float const*)',
    'max_pool_forward_nchw<float, int>',
  ],
  ['triton_poi_fused_add_relu_0', 'triton_poi_fused_add_relu_0'],
  ['Memcpy DtoH (Device -> Pinned)', 'Memcpy DtoH (Device -> Pinned)'],
])('%s', (name, short) => {
  expect(shortKernel(name)).toBe(short);
});

test('broken names are shown as far as they go', () => {
  for (const name of ['', '<', 'a<', 'a_kernel<b<', ')(', 'void ', 'x_kernel<1, 2>']) {
    expect(typeof shortKernel(name)).toBe('string');
    expect(typeof nameParts(name).head).toBe('string');
  }
});

test('the end of a name stays, for it tells kernels apart', () => {
  expect(nameParts('triton_poi_fused_add_relu_12')).toEqual({
    kind: 'triton_poi_fused_',
    head: 'add_relu',
    tail: '_12',
  });
  const long =
    'sm90_xmma_dgrad_implicit_gemm_f32f32_tf32f32_f32_tilesize128x64x32_execute_segment_k_on_kernel';
  expect(nameParts(long).head + nameParts(long).tail).toBe(long);
});

test('what all names of a library end with makes room for what tells them apart', () => {
  const start = 'sm90_xmma_dgrad_implicit_gemm_f32f32_tf32f32_f32_tilesize128x64x32';
  const { head, tail } = nameParts(`${start}_warpgroupsize1x1x1_g1_execute_segment_k_off_kernel__5x_cudnn`);
  expect(head + tail).toBe(`${start}_warpgroupsize1x1x1_g1`);
});
