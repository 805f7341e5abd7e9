// y = 2 x for tiles of 64x32 bf16: loaded by TMA, doubled, written by TMA; both with 128-byte swizzle.
typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
struct alignas(64) Map { char bytes[128]; };
#define SHARED(p) ((u32)__cvta_generic_to_shared(p))
__device__ __forceinline__ u32 twice(u32 v) {
  float a = __uint_as_float(v << 16) * 2, b = __uint_as_float(v & 0xffff0000u) * 2; u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a)); return r;
}
extern "C" __global__ void __launch_bounds__(128) tmastore(const __grid_constant__ Map in, const __grid_constant__ Map out) {
  __shared__ __align__(1024) u32 tile[32 * 32]; __shared__ __align__(8) u64 bar;
  const int x = blockIdx.x * 64, y = blockIdx.y * 32, tid = threadIdx.x;
  if (tid == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(SHARED(&bar)) : "memory"); // @init
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 4096;" ::"r"(SHARED(&bar)) : "memory"); // @expect
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(SHARED(tile)), "l"((u64)&in), "r"(SHARED(&bar)), "r"(x), "r"(y) : "memory"); // @load
  }
  __syncthreads(); // @sync1
  asm volatile("{\n.reg .pred p;\nW:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0;\n@p bra E;\nbra W;\nE:\n}" ::"r"(SHARED(&bar)) : "memory"); // @wait
  for (int i = tid; i < 1024; i += 128) tile[i] = twice(tile[i]); // @double
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); // @proxy
  __syncthreads(); // @sync2
  if (tid == 0) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"((u64)&out), "r"(SHARED(tile)), "r"(x), "r"(y) : "memory"); // @store
    asm volatile("cp.async.bulk.commit_group;" ::: "memory"); // @commit
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); // @drain
  }
}
