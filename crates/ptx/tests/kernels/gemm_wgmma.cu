// C[M,N] = A[M,K] B[N,K]^T, bf16: a producer warp fills four stages by TMA, two warpgroups consume them by wgmma.
typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
struct alignas(64) Map { char bytes[128]; };
#define BM 128
#define BN 128
#define BK 64
#define ST 4
#define TILE (BM * BK * 2)
#define SHARED(p) ((u32)__cvta_generic_to_shared(p))
#define INIT(b, n) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(b), "r"(n) : "memory")
#define EXPECT(b, n) asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(n) : "memory")
#define ARRIVE(b) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(b) : "memory")
#define WAIT(b, ph) asm volatile("{\n.reg .pred P1;\nLAB_WAIT:\nmbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n@P1 bra DONE;\nbra LAB_WAIT;\nDONE:\n}" ::"r"(b), "r"(ph) : "memory")
#define TMA(d, t, b, x, y) asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(d), "l"((u64)(t)), "r"(b), "r"(x), "r"(y) : "memory")
__device__ __forceinline__ u32 pack(float a, float b) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a)); return r; }
// Descriptor of a K-major tile with 128-byte swizzle: eight rows are 1024 bytes.
__device__ __forceinline__ u64 desc(u32 a) { return (u64)((a & 0x3FFFF) >> 4) | ((u64)1 << 16) | ((u64)(1024 >> 4) << 32) | ((u64)1 << 62); }
#define F4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define F16(d, i) F4(d, i), F4(d, i + 4), F4(d, i + 8), F4(d, i + 12)
#define WGMMA(d, a, b) asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, 1, 1, 1, 0, 0;" : F16(d, 0), F16(d, 16), F16(d, 32), F16(d, 48) : "l"(a), "l"(b))

extern "C" __global__ void __launch_bounds__(384, 1) gemm_wgmma(const __grid_constant__ Map ta, const __grid_constant__ Map tb, u16* __restrict__ C, int M, int N, int K) {
  extern __shared__ __align__(1024) unsigned char sm[];
  __shared__ __align__(8) u64 full[ST], empty[ST];
  unsigned char *sA = sm, *sB = sm + ST * TILE;
  const int tid = threadIdx.x, group = tid >> 7;
  const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN, tiles = (K + BK - 1) / BK;
  if (tid == 0) {
    for (int i = 0; i < ST; ++i) { INIT(SHARED(&full[i]), 1); INIT(SHARED(&empty[i]), 2); } // @init
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads(); // @sync
  if (group == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (tid == 0) {
      for (int kt = 0; kt < tiles; ++kt) {
        int s = kt % ST; u32 phase = (kt / ST) & 1;
        WAIT(SHARED(&empty[s]), phase ^ 1); // @waitEmpty
        EXPECT(SHARED(&full[s]), (BM + BN) * BK * 2); // @expect
        TMA(SHARED(sA + s * TILE), &ta, SHARED(&full[s]), kt * BK, m0); // @tmaA
        TMA(SHARED(sB + s * TILE), &tb, SHARED(&full[s]), kt * BK, n0); // @tmaB
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    float d[64] = {};
    const int wm = (group - 1) * 64;
    for (int kt = 0; kt < tiles; ++kt) {
      int s = kt % ST; u32 phase = (kt / ST) & 1;
      WAIT(SHARED(&full[s]), phase); // @waitFull
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); // @fence
      u64 da = desc(SHARED(sA + s * TILE + wm * BK * 2)), db = desc(SHARED(sB + s * TILE));
#pragma unroll
      for (int k = 0; k < BK / 16; ++k) WGMMA(d, da + 2 * k, db + 2 * k); // @wgmma
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); // @waitGroup
      if ((tid & 127) == 0) ARRIVE(SHARED(&empty[s])); // @release
    }
    const int lane = tid & 31, w = (tid >> 5) & 3;
    int r = m0 + wm + w * 16 + (lane >> 2);
#pragma unroll
    for (int j = 0; j < BN / 8; ++j) {
      int c = n0 + j * 8 + (lane & 3) * 2;
      if (c < N) {
        if (r < M) *(u32*)(C + (size_t)r * N + c) = pack(d[j * 4], d[j * 4 + 1]); // @store0
        if (r + 8 < M) *(u32*)(C + (size_t)(r + 8) * N + c) = pack(d[j * 4 + 2], d[j * 4 + 3]); // @store8
      }
    }
  }
}
