// C[M,N] = A[M,K] B[N,K]^T, bf16 with f32 accumulation: cp.async in three stages, ldmatrix, mma.sync; 128x128x32 tiles.
typedef unsigned short u16; typedef unsigned int u32;
#define BM 128
#define BN 128
#define BK 32
#define ST 3
#define SHARED(p) ((u32)__cvta_generic_to_shared(p))
#define COPY(d, s, n) asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(d), "l"(s), "r"(n) : "memory")
#define COMMIT() asm volatile("cp.async.commit_group;" ::: "memory")
#define WAIT(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")
#define LDM(a, b, c, d, p) asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(p) : "memory")
// Place of 16-byte chunk c (0..3) of row r.
#define SWZ(r, c) ((r) * BK + ((((c) ^ (((r) >> 1) & 3))) << 3))
__device__ __forceinline__ u32 pack(float a, float b) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a)); return r; }

extern "C" __global__ void __launch_bounds__(256) gemm_mma(const u16* __restrict__ A, const u16* __restrict__ B, u16* __restrict__ C, int M, int N, int K) {
  extern __shared__ __align__(128) u16 sm[];
  u16 *sA = sm, *sB = sm + ST * BM * BK;
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
  const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN, wm = (warp & 1) * 64, wn = (warp >> 1) * 32;
  float acc[4][4][4] = {};
  const int tiles = (K + BK - 1) / BK;
  auto load = [&](int stage, int kt) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      int id = tid + i * 256, r = id >> 2, c = id & 3, k = kt * BK + c * 8;
      bool a = (m0 + r < M) && k < K, b = (n0 + r < N) && k < K; // @guard
      COPY(SHARED(sA + stage * BM * BK + SWZ(r, c)), A + (a ? (size_t)(m0 + r) * K + k : 0), a ? 16 : 0); // @copyA
      COPY(SHARED(sB + stage * BN * BK + SWZ(r, c)), B + (b ? (size_t)(n0 + r) * K + k : 0), b ? 16 : 0); // @copyB
    }
  };
#pragma unroll
  for (int s = 0; s < ST - 1; ++s) { if (s < tiles) load(s, s); COMMIT(); }
  for (int kt = 0; kt < tiles; ++kt) {
    WAIT(ST - 2); // @wait
    __syncthreads(); // @sync
    if (kt + ST - 1 < tiles) load((kt + ST - 1) % ST, kt + ST - 1); // @next
    COMMIT();
    const u16 *a = sA + (kt % ST) * BM * BK, *b = sB + (kt % ST) * BN * BK;
#pragma unroll
    for (int kk = 0; kk < 2; ++kk) {
      u32 ra[4][4], rb[4][2];
#pragma unroll
      for (int i = 0; i < 4; ++i) LDM(ra[i][0], ra[i][1], ra[i][2], ra[i][3], SHARED(a + SWZ(wm + i * 16 + (lane & 15), kk * 2 + (lane >> 4)))); // @ldA
#pragma unroll
      for (int j = 0; j < 2; ++j) LDM(rb[2 * j][0], rb[2 * j][1], rb[2 * j + 1][0], rb[2 * j + 1][1], SHARED(b + SWZ(wn + j * 16 + ((lane >> 4) << 3) + (lane & 7), kk * 2 + ((lane >> 3) & 1)))); // @ldB
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                       : "+f"(acc[i][j][0]), "+f"(acc[i][j][1]), "+f"(acc[i][j][2]), "+f"(acc[i][j][3])
                       : "r"(ra[i][0]), "r"(ra[i][1]), "r"(ra[i][2]), "r"(ra[i][3]), "r"(rb[j][0]), "r"(rb[j][1]));
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      int r = m0 + wm + i * 16 + (lane >> 2), c = n0 + wn + j * 8 + (lane & 3) * 2;
      if (c < N) {
        if (r < M) *(u32*)(C + (size_t)r * N + c) = pack(acc[i][j][0], acc[i][j][1]); // @store0
        if (r + 8 < M) *(u32*)(C + (size_t)(r + 8) * N + c) = pack(acc[i][j][2], acc[i][j][3]); // @store8
      }
    }
}
