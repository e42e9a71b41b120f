"""Names and what they are: real ones from traces and from the libraries' sources, and their false friends."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from overlapscope.classify import Classifier, Collective, Kind, Verdict
from overlapscope.errors import RulesError

RULES = Classifier.default()

COMMUNICATION = """
copy-peer                     send_recv       Memcpy PtoP
cutlass-distributed-barrier   barrier         void cutlass::distributed::kernel::full_barrier_kernel<8, int, 8, int>(cutlass::Array<int*, 8>, int)
nccl-all-reduce               all_reduce      ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)
nccl-all-reduce               all_reduce      ncclKernel_AllReduce_RING_LL_Sum_bfloat16(ncclDevComm*, unsigned long, ncclWork*)
nccl-all-reduce               all_reduce      ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)
nccl-all-reduce               all_reduce      ncclDevKernel_AllReduce_Sum_f32_TREE_LL
nccl-all-reduce               all_reduce      ncclSymkDevKernel_AllReduce_RSxLDMC_AGxSTMC_sum_bf16
nccl-all-reduce               all_reduce      ncclSymDevKernel_AllReduce_AGxLL_R_sum_f16(ncclSymDevArgs)
nccl-all-reduce               all_reduce      ncclAllReduceRingLLKernel_sum_f16(ncclColl)
nccl-all-reduce               all_reduce      _Z39ncclDevKernel_AllReduce_Sum_bf16_RING_LL24ncclDevKernelArgsStorageILm4096EE
nccl-all-gather               all_gather      ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)
nccl-all-gather               all_gather      ncclSymkDevKernel_AllGather_STMC
nccl-reduce-scatter           reduce_scatter  ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevComm*, unsigned long, ncclWork*)
nccl-reduce-scatter           reduce_scatter  ncclSymDevKernel_ReduceScatter_LDMC_sum_f8e5m2
nccl-broadcast                broadcast       ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)
nccl-reduce                   reduce          ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)
nccl-send-recv                send_recv       ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)
nccl-send-recv                send_recv       ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<(unsigned long)4096>)
nccl-all-to-all               all_to_all      ncclSymkDevKernel_AlltoAll_ST
nccl-other                    other           ncclDevKernel_Generic(ncclDevComm*, unsigned long, ncclWork*)
nccl-other                    other           ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)
nccl-other                    other           ncclGpuKernel2030_AnyName<bf16>(int)
rccl-other                    other           void rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)
msccl-all-reduce              all_reduce      void mscclpp::collective::allreducePacket<float>(float*)
msccl-all-reduce              all_reduce      void mscclKernel_AllReduce_Sum_half(ncclDevComm*)
msccl-all-gather              all_gather      mscclpp::collective::allgatherFullmesh2(void*)
msccl-all-to-all              all_to_all      mscclpp::collective::alltoallvKernel(void*)
msccl-other                   other           mscclKernel_Sum_half_Simple_false(ncclDevComm*, mscclAlgo*, mscclWork*)
custom-all-reduce             all_reduce      void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*, vllm::RankSignals)
custom-all-reduce             all_reduce      void vllm::cross_device_reduce_2stage<__half, 8>(vllm::RankData*)
custom-all-reduce             all_reduce      void aiter::cross_device_reduce_1stage_naive<__hip_bfloat16, 8>(aiter::RankData*)
quick-reduce                  all_reduce      void quickreduce::allreduce_prototype_twoshot<AllReduceTwoshot<__half, CodecQ4<__half, 4>, true>, __half>(__half const*)
aiter-all-gather              all_gather      void aiter::allgather_vec<__hip_bfloat16, 8>(aiter::RankData*)
aiter-reduce-scatter          reduce_scatter  void aiter::reduce_scatter_cross_device_store<__hip_bfloat16, 8>(aiter::RankData*)
symm-mem-all-reduce           all_reduce      void c10d::symmetric_memory::(anonymous namespace)::one_shot_all_reduce_kernel<c10::BFloat16, 16, 8>(c10::BFloat16**)
symm-mem-all-reduce           all_reduce      void two_shot_all_reduce_kernel<c10::BFloat16, 16, 8>(c10::BFloat16**)
symm-mem-all-reduce           all_reduce      void multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)
symm-mem-all-reduce           all_reduce      void multimem_one_shot_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)
symm-mem-all-gather           all_gather      void multimem_all_gather_kernel<16>(char*, char*, unsigned long, unsigned int**)
symm-mem-reduce-scatter       reduce_scatter  void multimem_reduce_scatter_kernel<16>(char*)
symm-mem-reduce               reduce          void multimem_one_shot_reduce_kernel<float, 16>(float*)
symm-mem-all-to-all           all_to_all      allToAllV(void*, void*, long*, unsigned long)
symm-mem-barrier              barrier         c10d::symmetric_memory::barrier_kernel(unsigned int**, int, int, int, unsigned long)
symm-mem-barrier              barrier         barrier_kernel(unsigned int **, int, int, int, unsigned long)
userbuffers-all-gather        all_gather      void userbuffers_fp16_sum_inplace_gpu_rw_ag<2>(int, int, int, int)
userbuffers-all-gather        all_gather      void userbuffers_fp16_sum_inplace_gpu_mc_ag<1>(int, int)
userbuffers-reduce-scatter    reduce_scatter  void userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<8>(int, int)
userbuffers-reduce-scatter    reduce_scatter  void userbuffers_fp16_sum_inplace_gpu_mc_rs_oop_fp8<__nv_fp8_e4m3>(int, int)
userbuffers-all-reduce        all_reduce      void userbuffers_fp16_sum_inplace_gpu_rw<8>(int, int)
userbuffers-send-recv         send_recv       kuserbuffers_pushsendrecv(int*, int*, int4*, int4*)
userbuffers-send-recv         send_recv       kuserbuffers_pullrecv(int, int, int*, int*)
userbuffers-other             other           kuserbuffers_inc(int*)
tensorrt-llm-all-reduce       all_reduce      void tensorrt_llm::kernels::oneShotAllReduceKernel<__half, 8, true>(AllReduceParams)
tensorrt-llm-all-reduce       all_reduce      void tensorrt_llm::kernels::twoShotAllReduceKernel<__half, 8>(AllReduceParams)
tensorrt-llm-all-reduce       all_reduce      void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<(AllReduceFusionPattern)1, __nv_bfloat16, 8>(int)
tensorrt-llm-all-reduce       all_reduce      void allreduce_fusion_kernel_twoshot_sync<(AllReduceFusionPattern)1, __nv_bfloat16, 8>(int)
tensorrt-llm-all-reduce       all_reduce      void lamport_style_one_shot_all_reduce_norm_kernel<__half, 8>(int)
tensorrt-llm-all-reduce       all_reduce      void flashinfer::trtllm_mnnvl_allreduce::oneshotAllreduceFusionKernel<8, __nv_bfloat16>(int)
tensorrt-llm-all-to-all       all_to_all      moeAllToAllKernel(int)
tensorrt-llm-all-to-all       all_to_all      void moeA2ADispatchKernel<BlockPolicy, 8>(int const*)
deep-ep-barrier               barrier         void deep_ep::intranode::barrier<8>(int**, int)
deep-ep                       all_to_all      void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, int*)
deep-ep                       all_to_all      void deep_ep::intranode::notify_dispatch<8>(int const*, int*)
deep-ep                       all_to_all      void deep_ep::internode_ll::combine<false, 7168, 9, 12>(void*, void*)
deep-ep                       all_to_all      void dpsk::ep::intranode::combine<__nv_bfloat16, 8>(int4*)
mori                          all_to_all      void mori::moe::EpDispatchIntraNodeKernel<hip_bfloat16>(mori::moe::EpDispatchCombineArgs)
nvshmem-barrier               barrier         void barrier_on_stream_kernel_threadgroup<(threadgroup_t)1>(int, int)
nvshmem-other                 other           nvshmemi_proxy_quiet_kernel()
nvshmem-other                 other           void alltoall_on_stream_kernel<float>(int)
flux-barrier                  barrier         bytedance::flux::CudaIpcBarrierAllKernel(bytedance::flux::CudaIpcBarrierAllArgs)
flux-all-to-all               all_to_all      void bytedance::flux::a2a_single_kernel<8>(A2ASingleParams)
flux-reduce-scatter           reduce_scatter  void bytedance::flux::topk_reduce_scatter_kernel<__nv_bfloat16>(int)
"""  # noqa: E501

COMPUTATION = """
cutlass-distributed-gemm  gemm+comm  void cutlass::device_kernel<cutlass::distributed::kernel::DistributedGemmKernelWrapper<cutlass::gemm::kernel::GemmUniversal<int>, cutlass::distributed::schedules::AllGather1D_TilingCD_RotatingA<8>>>(int)
cutlass-distributed-gemm  gemm+comm  void cutlass::device_kernel<cutlass::distributed::schedules::ReduceScatter1D_TilingA_RotatingC<8>>(int)
flux-gemm                 gemm+comm  void cutlass::Kernel<flux_bf16_bf16_void_bf16_fp32_fp32_sm80_a100_agkernel_rcr_gemmv2_false_nil>(int)
flux-gemm                 gemm+comm  void cutlass::Kernel<flux_bf16_bf16_void_bf16_fp32_fp32_sm80_a100_reducescatter_rcr_gemmv2_false_false_intranode>(int)
flux-gemm                 gemm+comm  void bytedance::flux::GemmRS<int>(int)
gemm-with-collective      gemm+comm  void fused_gemm_all_reduce_kernel<__nv_bfloat16>(int)
gemm-with-collective      gemm+comm  kernel_consumer_ag_gemm_persistent
gemm-with-collective      gemm+comm  kernel_gemm_rs_producer_persistent
flash-attention           attention  void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<(int)128, (int)128, (int)64, (int)4>, (bool)0>(flash::Flash_fwd_params)
flash-attention           attention  flash_fwd_kernel
flash-attention           attention  void flash_mla::decode_kernel<int>(int)
flash-attention           attention  void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128>>(Flash_bwd_params)
flash-attention           attention  void cutlass::device_kernel<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2>>>(flash::FlashAttnFwdSm90::Params)
flash-attention           attention  void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64>>(int)
cudnn-attention           attention  cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0
fmha                      attention  fmha_cutlassF_bf16_aligned_64x128_rf_sm80(AttentionKernel::Params)
fmha                      attention  fmhaSm100fKernel_QkvBfloat16OBfloat16H128PagedKvCausalP64
fmha                      attention  void ck_tile::kentry<256, 1, ck_tile::FmhaFwdKernel<int>>(int)
paged-attention           attention  void flashinfer::BatchDecodeWithPagedKVCacheKernel<2u, 4u>(int)
paged-attention           attention  void vllm::paged_attention_v1_kernel<__nv_bfloat16>(int)
triton-attention          attention  triton_tem_fused_flex_attention_0
triton-attention          attention  _attn_fwd
cublas-nvjet              gemm       nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN
cublas-nvjet              gemm       nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NTN
cublas-nvjet              gemm       nvjet_sm100_tst_128x256_64x4_1x2_h_bz_coopB_NNT
cublas-nvjet              gemm       nvjet_qqtst_128x128_128x6_2x1_v_bz_TNT
cudnn-implicit-gemm       gemm       sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x128x32_stage5_warpsize2x2x1_g1_tensor16x8x8_execute_kernel_cudnn_infer
cudnn-implicit-gemm       gemm       _ZN19cutlass_cudnn_train6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS1_11threadblock22ImplicitGemmMultistage
cublas-gemm               gemm       volta_sgemm_128x32_tn
cublas-gemm               gemm       turing_fp16_s1688gemm_fp16_128x64_ldg8_f2f_tn
cublas-gemm               gemm       ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_32x6_nn
cublas-gemm               gemm       sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize192x128x32_stage4_warpsize4x2x1_tensor16x8x16_kernel
cublas-gemm               gemm       sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas
cublas-split-k            gemm       void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, float, true, true, false>(cublasLt::cublasSplitKParams<float>)
cublas-split-k            gemm       void splitKreduce_kernel<float, float, float, float, true, false, false>(cublasSplitKParams<float>)
cublas-split-k            gemm       void cutlass_cudnn_train::Kernel<cutlass_cudnn_train::reduction::kernel::ReduceSplitK<cutlass_cudnn_train::MatrixShape<4, 128>>>(int)
cublas-gemv               gemm       void gemv2N_kernel<int, int, float, float, float, float, 128, 8, 4, 4, 1, false, cublasGemvParams<int>>(int)
cublas-gemv               gemm       void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 2, 2, false, false>(int)
cublas-gemv               gemm       void gemvNSP_kernel<float, float, float, float, 1, 16, 4, 1024>(int)
cublas-gemv               gemm       std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float, float, float, float, false, true>(int)
cublas-dot                gemm       void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensorStridedBatched<float const>>>(int)
cublas-dot                gemm       void reduce_1Block_kernel<float, 128, 7, cublasGemvTensorStridedBatched<float>>(float const*)
cutlass-gemm              gemm       void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x128_32x6_nn_align8>(T1::Params)
cutlass-gemm              gemm       void cutlass::Kernel<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(int)
cutlass-gemm              gemm       void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int>>>(int)
cutlass-gemm              gemm       cutlass3x_sm100_tensorop_s128x256x16gemm_bf16_bf16_f32_void_bf16_128x256x64_0_tnn_align8
cutlass-gemm              gemm       void cutlass::Kernel<flux_bf16_bf16_void_bf16_fp32_fp32_sm80_a100_commnone_rcr_gemmv2>(int)
deep-gemm                 gemm       void deep_gemm::sm90_fp8_gemm_1d2d_impl<7168u, 128u>(float*)
marlin                    gemm       void marlin::Marlin<1125899906909960l, 256, 1, 8, 8>(int4 const*)
triton-matmul             gemm       triton_mm
triton-matmul             gemm       triton_tem_fused_addmm_3
triton-matmul             gemm       fused_moe_kernel
triton-matmul             gemm       _w8a8_block_fp8_matmul
tensile                   gemm       Cijk_Ailk_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x256x64_MI16x16x1
tensorrt-llm-bmm          gemm       bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x8x512u2_s6_sm100f
gemm                      gemm       void gemmSN_TN_kernel<float, 128, 16, 2, 4, 8, 9, false>(int)
gemm                      gemm       void magma_sgemmEx_kernel<float, float, float, false, false, 6, 3, 5, 3, 3>(int, int, int, Tensor)
gemm                      gemm       void sgemm_largek_lds64<true, true, 6, 3, 4, 5, 2, 66>(float*)
gemm                      gemm       void (anonymous namespace)::my_tiled_gemm<float>(float*)
deep-ep-layout            compute    void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)
gemm-helper               compute    void marlin::gptq_marlin_repack_kernel<(int)256, (int)4, (bool)0, (bool)0>(unsigned int const*)
gemm-helper               compute    void cask_cudnn_infer::computeOffsetsKernel<false, false>(cask_cudnn_infer::ComputeOffsetsParams)
cudnn                     compute    void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 128, true, 1, true>(cudnnTensorStruct, float const*)
cudnn                     compute    void cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_128x128_16x4_nhwc_align4>(int)
convolution               compute    void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, float, int>(int)
triton-inductor           compute    triton_poi_fused_add_mul_tanh_0
triton-inductor           compute    triton_red_fused_native_layer_norm_1
triton-inductor           compute    triton__0d1d2d3d4de
nvfuser                   compute    <unnamed>::nvfuser_none_f0_c0_r0_g0(<unnamed>::Tensor<<unnamed>::__half, (int)3, (int)3>)
cub                       compute    void at_cuda_detail::cub::DeviceScanKernel<int>(int)
fbgemm                    compute    void fbgemm_gpu::permute_2D_data_kernel<false, int, int>(int, int, int, int const*)
fbgemm                    compute    void split_embedding_codegen_forward_unweighted_kernel<float, float, float, long, 5ul>(at::GenericPackedTensorAccessor<float, 1ul>, fbgemm_gpu::FixedDivisor)
torch-elementwise         compute    void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>, at::detail::Array<char*, 1> >(int)
torch-elementwise         compute    void <unnamed>::elementwise_kernel_with_index<int, at::native::arange_cuda_out(const c10::Scalar &)>(int)
torch-reduce              compute    void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float>, unsigned int, float, 4> >(int)
torch                     compute    void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 128, 1>(float*)
torch                     compute    void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)
softmax                   compute    void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>(float*)
norm                      compute    void cuApplyLayerNorm<c10::Half, float, c10::Half>(c10::Half*)
norm                      compute    void vllm::fused_add_rms_norm_kernel<__nv_bfloat16, 8>(int)
norm                      compute    void aiter::local_device_load_rmsnorm<__hip_bfloat16, 8>(aiter::RankSignals)
optimizer                 compute    void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float>(int)
activation                compute    void vllm::act_and_mul_kernel<__nv_bfloat16>(int)
rotary                    compute    void vllm::rotary_embedding_kernel<__nv_bfloat16, true>(long const*)
quantize                  compute    void dynamic_per_token_scaled_fp8_quant_kernel<__nv_bfloat16>(int)
index                     compute    void <unnamed>::indexing_backward_kernel<float, (int)4>(const long *)
index                     compute    all_gather_idx(int*)
choice                    compute    void vllm::moe::topkGating<8, 128, 4, 16>(float const*)
cublas-epilogue           compute    void epilogue::impl::globalKernel<float, float, float, true, true>(int, int, long, float*, cublasLtEpilogue_t)
copy                      memory     Memcpy HtoD
copy                      memory     Memcpy DtoH
copy                      memory     Memcpy DtoD
copy                      memory     Memcpy HtoH
copy                      memory     Memcpy Unknown
fill                      memory     Memset
"""  # noqa: E501

UNKNOWN_KERNELS = [
    "my_reduce_kernel(float*)",
    "void dispatch<int>(int*)",
    "dispatch",
    "combine",
    "broadcast_kernel(float*, float*)",
    "barrier_kernel(float*, int)",
    "void user::allreduce_stats<int>(int*)",
    "pack_for_ncclAllReduce(float*)",
    "takes_a_communicator(ncclDevComm*, float*)",
    "device_kernel",
    "void cutlass::device_kernel<mine::Kernel>(int)",
    "saxpy(double *, double *, double *, double, int)",
    "void clover::par_ranged2d_kernel<flux_calc_kernel(int, int)::[lambda(int, int) (instance 1)]>(T1)",
    "Memcpy PtoP (Device -> Device)",
    "my Memset",
]

HOST = """
host-gloo           comm:all_reduce      gloo:all_reduce
host-gloo           comm:all_gather      gloo:all_gather
host-gloo           comm:all_to_all      gloo:all_to_all
host-gloo           comm:broadcast       gloo:broadcast
host-gloo           comm:reduce          gloo:reduce
host-gloo           comm:send_recv       gloo:send
host-gloo           comm:send_recv       gloo:recvAnySource
host-gloo           comm:barrier         gloo:barrier
host-gloo           comm:other           gloo:scatter
host-gloo           comm:other           gloo:something_new
host-paced          comm:reduce_scatter  paced:reduce_scatter
host-paced          comm:send_recv       paced:send_recv
host-mpi            comm:all_reduce      mpi:all_reduce
host-ucc            comm:all_gather      ucc:all_gather
marked-comm         comm:all_reduce      comm:mlp.down.all_reduce
marked-comm         comm:reduce_scatter  comm:attn.qkv.grad.reduce_scatter
marked-comm         comm:send_recv       comm:ring.send_recv
marked-comm         comm:broadcast       comm:broadcast
marked-comm         comm:all_gather      comm:weights.allgather
marked-comm         comm:other           comm:gradients
marked-comm         comm:other           comm:all_reduce.of.gradients
marked-compute      compute              sharded:attn.out.dgrad
marked-compute      compute              replicated:aten::mm
host-dispatch       none                 c10d::allreduce_
host-dispatch       none                 record_param_comms
host-dispatch       none                 c10d_functional::all_reduce
host-handover       none                 _c10d_functional::wait_tensor
host-handover       none                 c10d_functional::wait_tensor
host-handover       none                 PythonSubclass
host-dispatch       none                 torch.distributed.ddp.reducer::copy_bucket_to_grad
host-dispatch       none                 nccl:all_reduce
host-dispatch       none                 symm_mem::fused_all_gather_matmul
host-autograd       none                 autograd::engine::evaluate_function: AddmmBackward0
host-autograd       none                 torch::autograd::AccumulateGrad
host-autograd       none                 MmBackward0
host-autograd       none                 CompiledFunctionBackward
host-profiler       none                 ProfilerStep#552
host-profiler       none                 Optimizer.step#AdamW.step
host-profiler       none                 enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__
host-profiler       none                 ## forward ##
host-view           none                 aten::view
host-view           none                 aten::t
host-view           none                 aten::as_strided
host-view           none                 aten::split_with_sizes
host-view           none                 aten::_unsafe_view
host-view           none                 aten::resolve_conj
host-view           none                 detach_
host-allocation     none                 aten::empty_strided
host-allocation     none                 aten::ones_like
host-allocation     none                 aten::new_zeros
host-allocation     none                 aten::resize_
host-scalar         none                 aten::item
host-scalar         none                 aten::_local_scalar_dense
host-scalar         none                 aten::is_nonzero
host-wrapper        none                 aten::linear
host-wrapper        none                 aten::matmul
host-wrapper        none                 aten::mv
host-wrapper        none                 aten::layer_norm
host-wrapper        none                 aten::_to_copy
host-wrapper        none                 aten::clone
host-wrapper        none                 aten::scaled_dot_product_attention
host-wrapper        none                 aten::_scaled_dot_product_attention_math
host-attention      attention            aten::_scaled_dot_product_flash_attention_for_cpu
host-attention      attention            aten::_scaled_dot_product_flash_attention_for_cpu_backward
host-gemm           gemm                 aten::mm
host-gemm           gemm                 aten::addmm
host-gemm           gemm                 aten::addmm_
host-gemm           gemm                 aten::bmm
host-gemm           gemm                 aten::baddbmm
host-gemm           gemm                 aten::addmv_
host-gemm           gemm                 aten::dot
host-gemm           gemm                 aten::_scaled_mm
host-gemm           gemm                 aten::_addmm_activation
host-gemm           gemm                 aten::mkldnn_linear
host-mkldnn-linear  gemm                 mkldnn::_linear_pointwise
host-memory         memory               aten::copy_
host-memory         memory               aten::fill_
host-memory         memory               aten::zero_
host-convolution    compute              aten::_slow_conv2d_forward
host-convolution    compute              aten::convolution_backward
host-norm           compute              aten::native_layer_norm_backward
host-norm           compute              aten::_fused_rms_norm
host-softmax        compute              aten::_softmax
host-softmax        compute              aten::_log_softmax_backward_data
host-optimizer      compute              aten::_foreach_add_
host-optimizer      compute              aten::_fused_adamw_
host-elementwise    compute              aten::add_
host-elementwise    compute              aten::gelu_backward
host-elementwise    compute              aten::silu
host-elementwise    compute              aten::pow
host-reduction      compute              aten::sum
host-reduction      compute              aten::linalg_vector_norm
host-index          compute              aten::index_select
host-index          compute              aten::cat
host-generator      compute              aten::arange
host-loss           compute              aten::nll_loss_forward
host-pooling        compute              aten::max_pool2d_with_indices
-                   compute              aten::some_new_operator
-                   compute              vllm::fused_add_rms_norm
-                   compute              fbgemm::permute_2D_sparse_data
-                   none                 forward
-                   none                 AUCMetric:update
-                   none                 LinearWithGradAccumulationAndAsyncCommunication
"""

ANNOTATIONS = """
name-all-reduce      all_reduce      nccl:all_reduce
name-all-reduce      all_reduce      xccl:all_reduce
name-all-reduce      all_reduce      gloo:sparse_all_reduce
name-all-reduce      all_reduce      comm:mlp.down.all_reduce
name-all-reduce      all_reduce      ncclAllReduce
name-all-reduce      all_reduce      allreduce
name-all-reduce      all_reduce      nccl:allreduce_coalesced
name-all-reduce      all_reduce      c10d::allreduce_
name-all-reduce      all_reduce      c10d_functional.all_reduce
name-all-reduce      all_reduce      _c10d_functional::all_reduce_
name-all-gather      all_gather      gloo:all_gather
name-all-gather      all_gather      nccl:_all_gather_base
name-all-gather      all_gather      _allgather_base
name-all-gather      all_gather      ncclAllGather
name-all-gather      all_gather      c10d::_allgather_base_
name-all-gather      all_gather      _c10d_functional::all_gather_into_tensor
name-all-gather      all_gather      allgather_into_tensor_coalesced
name-reduce-scatter  reduce_scatter  nccl:_reduce_scatter_base
name-reduce-scatter  reduce_scatter  reduce_scatter_tensor_coalesced
name-reduce-scatter  reduce_scatter  ncclReduceScatter
name-reduce-scatter  reduce_scatter  c10d::reduce_scatter_
name-broadcast       broadcast       broadcast
name-broadcast       broadcast       nccl:_broadcast_oop
name-broadcast       broadcast       ncclBcast
name-broadcast       broadcast       c10d::broadcast_
name-reduce          reduce          nccl:reduce
name-reduce          reduce          _reduce_oop
name-reduce          reduce          ncclReduce
name-all-to-all      all_to_all      nccl:all_to_all
name-all-to-all      all_to_all      all_to_allv
name-all-to-all      all_to_all      c10d::alltoall_base_
name-all-to-all      all_to_all      ncclAlltoAll
name-send-recv       send_recv       ncclSend
name-send-recv       send_recv       ncclRecv
name-send-recv       send_recv       nccl:send 0->1
name-send-recv       send_recv       nccl:recv 1<-0
name-send-recv       send_recv       c10d::recv_any_source_
name-send-recv       send_recv       isend
name-barrier         barrier         barrier
name-barrier         barrier         nccl:all_reduce_barrier
name-other           other           nccl:coalesced
name-other           other           gloo:gather
name-other           other           ncclScatter
"""

NO_COLLECTIVE = [
    "wait",
    "nccl:",
    "ncclGroupEnd",
    "ncclCommInitRank",
    "record_param_comms",
    "_c10d_functional::wait_tensor",
    "aten::gather",
    "aten::sum",
    "my_allreduce_hook",
    "send metrics",
    "## all2all_data:init ##",
    "ProfilerStep#3",
]


def table(text: str) -> list[tuple[str, str, str]]:
    """(rule id, verdict, name) a line; a name may hold blanks."""
    rows = [line.split(maxsplit=2) for line in text.splitlines() if line]
    return [(rule, verdict, name) for rule, verdict, name in rows]


def in_words(verdict: Verdict) -> str:
    if verdict.collective is not None:
        return f"{verdict.kind}:{verdict.collective}"
    return f"{verdict.kind or 'none'}{'+comm' if verdict.fused_comm else ''}"


@pytest.mark.parametrize(("rule", "collective", "name"), table(COMMUNICATION))
def test_communication_kernels(rule: str, collective: str, name: str) -> None:
    verdict = RULES.kernel(name)
    assert (verdict.rule, in_words(verdict)) == (rule, f"comm:{collective}")
    assert verdict.library is not None


@pytest.mark.parametrize(("rule", "kind", "name"), table(COMPUTATION))
def test_other_device_activities(rule: str, kind: str, name: str) -> None:
    verdict = RULES.kernel(name)
    assert (verdict.rule, in_words(verdict)) == (rule, kind)


@pytest.mark.parametrize("name", UNKNOWN_KERNELS)
def test_a_kernel_no_rule_knows_is_compute_and_says_so(name: str) -> None:
    assert RULES.kernel(name) == Verdict(Kind.COMPUTE)


@pytest.mark.parametrize(
    "name",
    [
        "void at::native::elementwise_kernel<128, 2, my::broadcast_all_reduce_kernel_functor>(int)",
        "void at::native::vectorized_elementwise_kernel<4, fbgemm_gpu::_float_to_hfp8_gpu(at::Tensor)>(int)",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, GemmOutput>>(int)",
        "void at::native::_scatter_gather_elementwise_kernel<128, 4>(int)",
        "void tensorrt_llm::doActivationKernel<__nv_bfloat16, GemmOutputType>(int)",
    ],
)
def test_words_among_template_arguments_decide_nothing(name: str) -> None:
    verdict = RULES.kernel(name)
    assert verdict.kind is Kind.COMPUTE
    assert verdict.rule is not None


@pytest.mark.parametrize(
    ("demangled", "short", "expected"),
    [
        # DeepEP's short name says nothing
        ("void deep_ep::internode_ll::dispatch<true, 3, 10, 7168>(void*)", "dispatch", "deep-ep"),
        # nsys shortens long names with a counter
        ("ampere_bf16_s16816gemm_bf16_128x64_nn", "ampere_bf16_s16816gemm_bf16_12_4...", "cublas-gemm"),
        # a mangled name whose short form is readable
        ("_ZN2at6native13reduce_kernelE", "void at::native::reduce_kernel<1>", "torch-reduce"),
        # each rule on both names before the next rule: nccl-all-reduce stands before flash-attention
        ("flash_fwd_kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "nccl-all-reduce"),
    ],
)
def test_demangled_name_then_short_name(demangled: str, short: str, expected: str) -> None:
    assert RULES.kernel(demangled, short).rule == expected


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("Memcpy PtoP", "copy_engine"),
        ("ncclDevKernel_Generic", "NCCL"),
        ("rcclGenericKernel", "RCCL"),
        ("nvjet_tst_96x64_64x10_1x2_h_bz_bias_TNN", "cuBLAS"),
        ("gloo:all_reduce", "gloo"),
    ],
)
def test_libraries(name: str, library: str) -> None:
    verdict = RULES.host(name) if name.startswith("gloo") else RULES.kernel(name)
    assert verdict.library == library


@pytest.mark.parametrize(("rule", "expected", "name"), table(HOST))
def test_host_operators(rule: str, expected: str, name: str) -> None:
    verdict = RULES.host(name)
    assert (verdict.rule or "-", in_words(verdict)) == (rule, expected)


@pytest.mark.parametrize(("rule", "collective", "name"), table(ANNOTATIONS))
def test_annotations(rule: str, collective: str, name: str) -> None:
    assert RULES.annotation(name) == collective
    assert [r.id for r in RULES.rules if r.scope == "annotation" and re.search(r.pattern, name)] == [rule]


@pytest.mark.parametrize("name", NO_COLLECTIVE)
def test_names_that_name_no_collective(name: str) -> None:
    assert RULES.annotation(name) is None


def test_no_rule_is_dead() -> None:
    tables = COMMUNICATION + COMPUTATION + HOST + ANNOTATIONS
    assert {rule.id for rule in RULES.rules} == {rule for rule, _, _ in table(tables)} - {"-"}


def test_every_kind_and_collective_in_order() -> None:
    assert [str(kind) for kind in Kind] == ["gemm", "attention", "compute", "comm", "memory"]
    assert [f"{collective}" for collective in Collective] == [
        "all_reduce",
        "all_gather",
        "reduce_scatter",
        "broadcast",
        "reduce",
        "all_to_all",
        "send_recv",
        "barrier",
        "other",
    ]
    assert {"gemm": 1}[Kind.GEMM] == 1, "a kind is its own text"


def test_default_rules_are_read_once() -> None:
    assert Classifier.default() is Classifier.default()


def rules_file(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_users_rules_go_first_and_ours_stay(tmp_path: Path) -> None:
    path = rules_file(
        tmp_path,
        """
        [[rule]]
        id = "ring"
        pattern = '^my_ring_kernel'
        kind = "comm"
        collective = "all_gather"
        library = "mine"
        why = "our own all-gather"

        [[rule]]
        id = "not-a-gemm"
        pattern = 'volta_sgemm'
        kind = "compute"

        [[rule]]
        id = "fused"
        pattern = '^dgemm_'
        kind = "gemm"
        fused_comm = true

        [[rule]]
        id = "transport"
        scope = "host"
        pattern = '^mylib:(?!:)'
        kind = "comm"
        collective = "named"

        [[rule]]
        id = "helper"
        scope = "host"
        pattern = '^mylib::'
        kind = "none"

        [[rule]]
        id = "spelling"
        scope = "annotation"
        pattern = '^AR$'
        kind = "comm"
        collective = "all_reduce"
        """,
    )
    mine = Classifier.with_rules(path)
    ring = Verdict(Kind.COMM, Collective.ALL_GATHER, "mine", rule="ring")
    assert mine.kernel("my_ring_kernel(float*)") == ring
    assert mine.kernel("volta_sgemm_128x32_tn") == Verdict(Kind.COMPUTE, rule="not-a-gemm")
    assert mine.kernel("dgemm_1") == Verdict(Kind.GEMM, fused_comm=True, rule="fused")
    assert mine.host("mylib:reduce_scatter") == Verdict(
        Kind.COMM, Collective.REDUCE_SCATTER, rule="transport"
    )
    assert mine.host("mylib:other") == Verdict(Kind.COMM, Collective.OTHER, rule="transport")
    assert mine.host("mylib::view") == Verdict(None, rule="helper")
    assert mine.annotation("AR") is Collective.ALL_REDUCE
    assert mine.kernel("nvjet_tst_1").rule == "cublas-nvjet"
    assert [rule.id for rule in mine.rules[:2]] == ["ring", "not-a-gemm"]
    assert mine.rules[6:] == RULES.rules
    assert RULES.kernel("volta_sgemm_128x32_tn").kind is Kind.GEMM, "the default is left as it was"


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("^my_?kernel", "mykernel", True),
        ("fo+bar{0,1}s?$", "foooba", True),
        ("(?:left|right)_side", "upright_side", True),
        ("(?i)MIXED", "a mixed name", True),
        ("one|[|]", "a|b", True),
        ("one|", "anything", True),
        (r"\x66oo", "foo", True),
        (r"\bend\d+", "the end12", True),
        ("(?x) spa ced # remark", "spaced", True),
        ("(?:ab(c|d)*)+e", "abce", True),
        (r"a{2}b\{2\}", "aab{2}", True),
        ("(?<!not_)mine", "not_mine", False),
        ("case", "CASE", False),
    ],
)
def test_any_regular_expression_works(tmp_path: Path, pattern: str, name: str, matches: bool) -> None:
    path = rules_file(tmp_path, f"[[rule]]\nid = 'mine'\nkind = 'memory'\npattern = '{pattern}'\n")
    assert (re.search(pattern, name) is not None) == matches
    assert (Classifier.with_rules(path).kernel(name).rule == "mine") == matches


GOOD = "[[rule]]\nid = 'a'\npattern = 'x'\nkind = 'gemm'\n"

BAD_FILES = {
    "": "holds no [[rule]] table; write each rule under a line [[rule]]",
    "rule = []": "holds no [[rule]] table; write each rule under a line [[rule]]",
    "[rule]\nid = 'a'": "holds no [[rule]] table; write each rule under a line [[rule]]",
    "[[rules]]\nid = 'a'": 'has an unknown key "rules"; keep only [[rule]] tables',
    "[[rule]]\npattern = 'x'\nkind = 'gemm'": "rule 1 has no id; every rule has an id, a pattern and a kind",
    GOOD + "[[rule]]\nid = 'b'\nkind = 'gemm'": (
        'rule 2 ("b") has no pattern; every rule has an id, a pattern and a kind'
    ),
    "[[rule]]\nid = 'a'\npattern = ''\nkind = 'gemm'": (
        'rule 1 ("a") has no pattern; every rule has an id, a pattern and a kind'
    ),
    "[[rule]]\nid = 'a'\npattern = 'x'": (
        'rule 1 ("a") has no kind; every rule has an id, a pattern and a kind'
    ),
    GOOD + GOOD: 'rule 2 repeats the id "a"; give it its own',
    GOOD + "patern = 'y'": (
        'rule 1 ("a") has an unknown key "patern"; '
        "the keys are id, scope, pattern, kind, collective, library, fused_comm, why"
    ),
    GOOD + "fused_comm = 'yes'": "rule 1 (\"a\") has fused_comm = 'yes'; fused_comm is true or false",
    GOOD + "library = 3": 'rule 1 ("a") has library = 3; library is text in quotes',
    GOOD + "scope = 'gpu'": 'rule 1 ("a") has an unknown scope "gpu"; use kernel, host, annotation',
    GOOD.replace("gemm", "gem"): (
        'rule 1 ("a") has an unknown kind "gem"; use gemm, attention, compute, comm, memory'
    ),
    GOOD.replace("gemm", "none"): (
        'rule 1 ("a") has an unknown kind "none"; use gemm, attention, compute, comm, memory'
    ),
    GOOD + "scope = 'annotation'": 'rule 1 ("a") has an unknown kind "gemm"; use comm',
    GOOD.replace("gemm", "comm"): (
        'rule 1 ("a") has kind comm and no collective; add one, "other" where it is not known'
    ),
    GOOD + "collective = 'reduce'": (
        'rule 1 ("a") has a collective without kind comm; remove it, or write kind = "comm"'
    ),
    GOOD.replace("gemm", "comm") + "collective = 'allreduce'": (
        'rule 1 ("a") has an unknown collective "allreduce"; use all_reduce, all_gather, reduce_scatter, '
        "broadcast, reduce, all_to_all, send_recv, barrier, other"
    ),
    GOOD.replace("gemm", "compute") + "fused_comm = true": (
        'rule 1 ("a") has fused_comm without kind gemm; remove it, or write kind = "gemm"'
    ),
    GOOD.replace("'x'", "'a(b'"): (
        'rule 1 ("a") has a bad pattern: missing ), unterminated subpattern at position 1; '
        "mend the regular expression"
    ),
}


@pytest.mark.parametrize(("text", "message"), BAD_FILES.items())
def test_a_rules_file_that_makes_no_sense_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = rules_file(tmp_path, text)
    with pytest.raises(RulesError) as refusal:
        Classifier.with_rules(path)
    assert str(refusal.value) == f"{path}: {message}"


def test_a_rules_file_that_is_not_toml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RulesError, match=r"mine\.toml: is not TOML: .* line 2, column 6\); mend it there$"):
        Classifier.with_rules(rules_file(tmp_path, "[[rule]]\nid = = 1"))
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(RulesError, match=r"binary\.toml: is not TOML: "):
        Classifier.with_rules(tmp_path / "binary.toml")


def test_a_rules_file_that_nests_too_deeply_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(f"a = {'[' * 100_000}")
    with pytest.raises(RulesError, match=r"mine\.toml: is nested too deeply; keep only \[\[rule\]\] tables"):
        Classifier.with_rules(tmp_path / "mine.toml")


def test_a_pipe_of_rules_is_refused_rather_than_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RulesError, match=r"pipe: is no regular file; name a TOML file of rules"):
        Classifier.with_rules(tmp_path / "pipe")


def test_rules_see_the_head_of_a_name_alone() -> None:
    """Some patterns take time with the square of the length; 100 kB took 15 s."""
    long = "matmul_" * 15_000
    seen, unseen = f"{'x' * 4087} cutlass_gemm", f"{'x' * 4096} cutlass_gemm"
    assert Classifier.default().kernel(f"ncclDevKernel_AllReduce({long}").kind is Kind.COMM
    assert Classifier.default().kernel(long).kind is not None
    assert Classifier.default().kernel(seen).rule is None
    assert Classifier.default().kernel(seen.replace("x" * 4, "", 1)).rule is not None
    assert Classifier.default().kernel(unseen).rule is None


def test_a_rules_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "absent.toml"
    with pytest.raises(RulesError) as refusal:
        Classifier.with_rules(path)
    reason = "cannot be read (No such file or directory)"
    assert str(refusal.value) == f"{path}: {reason}; name a TOML file of rules"
