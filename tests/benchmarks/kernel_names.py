"""Forty kernel names as real programs have them: what a classifier must tell apart, at their real length."""

from __future__ import annotations

__all__ = ["COLLECTIVES", "COMPUTE", "GEMMS", "SMALL"]

_UNARY = (
    "void at::native::vectorized_elementwise_kernel<(int)4, at::native::{functor}, "
    "std::array<char *, (unsigned long){n}>>(int, T2, T3)"
)
_UNROLLED = (
    "void at::native::unrolled_elementwise_kernel<at::native::{functor}, "
    "std::array<char *, (unsigned long)2>, TrivialOffsetCalculator<(int)1, unsigned int>, "
    "TrivialOffsetCalculator<(int)1, unsigned int>, at::native::memory::LoadWithCast<(int)1>, "
    "at::native::memory::StoreWithCast<(int)1>>(int, T1, T2, T3, T4)"
)

GEMMS = (
    "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN",
    "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NTN",
    "nvjet_tst_256x128_64x4_2x1_v_bz_coopA_TNN",
    "nvjet_tst_192x208_64x4_1x1_h_bz_coopB_bias_TNT",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize2x1x1_execute_segment_k_off_kernel",
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn",
    "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_32x6_nt",
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_32x3_nn_align8>(T1::Params)",
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x128_32x4_tn_align8>(T1::Params)",
    "void cublasLt::splitKreduce_kernel<(int)32, (int)16, int, float, __nv_bfloat16, float, __nv_bfloat16, "
    "(bool)0, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, (bool)1, (bool)0, (bool)0>"
    "(cublasLt::cublasSplitKParams<T6>, const T4 *, const T9 *, T8 *, T5 *, const T6 *, const T6 *)",
)

COMPUTE = (
    "void flash_fwd_kernel<Flash_fwd_kernel_traits<(int)128, (int)128, (int)64, (int)4, (bool)0, (bool)0, "
    "cutlass::bfloat16_t>, (bool)0, (bool)1, (bool)0, (bool)0, (bool)1, (bool)1, (bool)0>(Flash_fwd_params)",
    "void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<(int)128, (int)64, (int)128, "
    "(int)8, cutlass::bfloat16_t>, (bool)0, (bool)1, (bool)0, (bool)1, (bool)1>(Flash_bwd_params)",
    "void transformer_engine::normalization::rmsnorm_fwd_tuned_kernel<transformer_engine::normalization::"
    "Kernel_traits<__nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, unsigned int, 4096>>(T1)",
    "void (anonymous namespace)::softmax_warp_forward<float, float, float, (int)11, (bool)0, (bool)0>"
    "(T2 *, const T1 *, int, int, int, const bool *, int, bool)",
    "void at::native::reduce_kernel<(int)512, (int)1, at::native::ReduceOp<float, at::native::func_wrapper_t<"
    "float, at::native::sum_functor<float, float, float>>, unsigned int, float, (int)4, (int)4>>(T3)",
    "void multi_tensor_apply_kernel<TensorListMetadata<(int)4>, AdamFunctor<float, float>, float, float>"
    "(long, volatile int *, T1, T2, T3...)",
)

SMALL = (
    *(
        _UNARY.format(functor=functor, n=n)
        for n, functor in (
            (3, "CUDAFunctor_add<c10::BFloat16>"),
            (2, "CUDAFunctorOnSelf_add<c10::BFloat16>"),
            (2, "FillFunctor<c10::BFloat16>"),
            (2, "FillFunctor<float>"),
            (3, "BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float>>"),
            (3, "BinaryFunctor<float, float, float, at::native::binary_internal::DivFunctor<float>>"),
            (2, "AUnaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float>>"),
            (2, "sqrt_kernel_cuda(at::TensorIteratorBase &)::[lambda(float) (instance 1)]"),
            (2, "silu_kernel(at::TensorIteratorBase &)::[lambda(c10::BFloat16) (instance 1)]"),
            (2, "gelu_kernel(at::TensorIteratorBase &)::[lambda(c10::BFloat16) (instance 1)]"),
            (2, "neg_kernel_cuda(at::TensorIteratorBase &)::[lambda(float) (instance 1)]"),
            (3, "lerp_scalar_kernel(at::TensorIteratorBase &)::[lambda(float, float) (instance 1)]"),
        )
    ),
    *(
        _UNROLLED.format(functor=f"direct_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda({kind})]")
        for kind in ("float", "c10::BFloat16", "long", "bool")
    ),
    "void at::native::elementwise_kernel<(int)128, (int)4, at::native::gpu_kernel_impl_nocast<at::native::"
    "direct_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda(c10::BFloat16)]>(T2, const T3 &)>(int, T3)",
    "void at::native::index_elementwise_kernel<(int)128, (int)4, at::native::gpu_index_kernel>(long, T3)",
    "void at::native::CatArrayBatchedCopy<at::native::OpaqueType<(unsigned int)2>, int, (int)3>(T1 *)",
    "void at::native::embedding_dense_backward_kernel<c10::BFloat16, float, long>(const T3 *, T1 *, T2, int)",
)

COLLECTIVES = (
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
    "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
    "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
)
