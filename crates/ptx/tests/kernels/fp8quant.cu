// Groups of 128 bf16 values to e4m3 with one scale each; a warp a group.
typedef unsigned short u16; typedef unsigned int u32;
__device__ __forceinline__ float low(u32 v) { return __uint_as_float(v << 16); }
__device__ __forceinline__ float high(u32 v) { return __uint_as_float(v & 0xffff0000u); }
#ifdef SOFT
// Without the instruction: nearest even by adding a power of two that aligns the last place.
__device__ __forceinline__ u32 e4m3(float x) {
  u32 sign = (__float_as_uint(x) >> 24) & 0x80; float a = fminf(fabsf(x), 448.f);
  int e = max((int)(__float_as_uint(a) >> 23) - 127, -6);
  float unit = __uint_as_float((u32)(e - 3 + 127) << 23), q = rintf(a / unit);
  u32 n = (u32)q + ((u32)(e + 6) << 3);
  return sign | n;
}
#define PAIR(hi, lo) ((u16)(e4m3(hi) << 8 | e4m3(lo)))
#else
__device__ __forceinline__ u16 PAIR(float hi, float lo) { u16 r; asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(hi), "f"(lo)); return r; }
#endif
extern "C" __global__ void __launch_bounds__(128) fp8quant(const u16* __restrict__ x, u32* __restrict__ y, float* __restrict__ sc, int groups) {
  int g = blockIdx.x * 4 + (threadIdx.x >> 5), lane = threadIdx.x & 31;
  if (g >= groups) return; // @guard
  uint2 v = *(const uint2*)(x + (size_t)g * 128 + lane * 4); // @load
  float m = fmaxf(fmaxf(fabsf(low(v.x)), fabsf(high(v.x))), fmaxf(fabsf(low(v.y)), fabsf(high(v.y))));
  for (int o = 16; o; o >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, o)); // @shfl
  float s = fmaxf(m, 1e-10f) / 448.f, r = 1.f / s;
  y[(size_t)g * 32 + lane] = (u32)PAIR(high(v.y) * r, low(v.y) * r) << 16 | PAIR(high(v.x) * r, low(v.x) * r); // @store
  if (lane == 0) sc[g] = s; // @scale
}
