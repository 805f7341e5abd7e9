// Clusters of two blocks: each sums its half of a row, reads the other's sum through distributed shared memory, and the
// row is scaled by the total. The scale factor of the row is multicast to both by a bulk copy.
typedef unsigned int u32; typedef unsigned long long u64;
#define SHARED(p) ((u32)__cvta_generic_to_shared(p))
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(128) cluster(const float* __restrict__ x, const float* __restrict__ factor, float* __restrict__ y, int half) {
  __shared__ __align__(16) float scale[4]; __shared__ float warp[4]; __shared__ float sum; __shared__ __align__(8) u64 bar;
  u32 rank; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  const int tid = threadIdx.x; const size_t row = blockIdx.x / 2;
  if (tid == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(SHARED(&bar)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 16;" ::"r"(SHARED(&bar)) : "memory"); // @expect
  }
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory"); // @csync1
  if (tid == 0 && rank == 0)
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], 16, [%2], %3;" ::"r"(SHARED(scale)), "l"(factor + row * 4), "r"(SHARED(&bar)), "h"((unsigned short)3) : "memory"); // @multicast
  const float* in = x + (row * 2 + rank) * half;
  float s = 0;
  for (int i = tid; i < half; i += 128) s += in[i];
  for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
  if ((tid & 31) == 0) warp[tid >> 5] = s; // @warp
  __syncthreads(); // @sync
  if (tid == 0) sum = warp[0] + warp[1] + warp[2] + warp[3]; // @sum
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory"); // @csync2
  u32 remote; float other;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(SHARED(&sum)), "r"(rank ^ 1));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(other) : "r"(remote) : "memory"); // @remote
  asm volatile("{\n.reg .pred p;\nW:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0;\n@p bra E;\nbra W;\nE:\n}" ::"r"(SHARED(&bar)) : "memory"); // @wait
  const float total = (sum + other) * scale[0]; // @scale
  for (int i = tid; i < half; i += 128) y[(row * 2 + rank) * half + i] = in[i] * total; // @store
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
