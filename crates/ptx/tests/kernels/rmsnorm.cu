// y = x * rsqrt(mean(x^2) + eps) * w, bf16 in and out, one block a row, eight elements a load.
typedef unsigned int u32;
__device__ __forceinline__ float low(u32 v) { return __uint_as_float(v << 16); }
__device__ __forceinline__ float high(u32 v) { return __uint_as_float(v & 0xffff0000u); }
__device__ __forceinline__ u32 pack(float a, float b) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a)); return r; }
__device__ __forceinline__ float square(u32 v) { return low(v) * low(v) + high(v) * high(v); }
__device__ __forceinline__ u32 scale(u32 v, u32 w, float r) { return pack(low(v) * r * low(w), high(v) * r * high(w)); }

extern "C" __global__ void __launch_bounds__(256) rmsnorm(const uint4* __restrict__ x, const uint4* __restrict__ w, uint4* __restrict__ y, int n, float eps) {
  __shared__ float part[32];
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
  const uint4* row = x + (size_t)blockIdx.x * (n / 8);
  float s = 0.f;
  for (int i = tid; i < n / 8; i += blockDim.x) {
    uint4 v = row[i]; // @load
    s += square(v.x) + square(v.y) + square(v.z) + square(v.w);
  }
  for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(0xffffffffu, s, o);
  if (lane == 0) part[warp] = s; // @part
  __syncthreads(); // @sync1
  if (warp == 0) {
    s = lane < (blockDim.x >> 5) ? part[lane] : 0.f; // @gather
    for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(0xffffffffu, s, o);
    if (lane == 0) part[0] = rsqrtf(s / n + eps); // @total
  }
  __syncthreads(); // @sync2
  const float r = part[0]; // @use
  uint4* out = y + (size_t)blockIdx.x * (n / 8);
  for (int i = tid; i < n / 8; i += blockDim.x) {
    uint4 v = row[i], g = w[i];
    out[i] = make_uint4(scale(v.x, g.x, r), scale(v.y, g.y, r), scale(v.z, g.z, r), scale(v.w, g.w, r)); // @store
  }
}
