// Sampling in f64: softmax, block scan, inverse of the distribution function at a Philox uniform.
typedef unsigned int u32; typedef unsigned long long u64;
__device__ __forceinline__ uint2 philox(u32 k0, u32 k1, u32 c0, u32 c1) {
  u32 x0 = c0, x1 = c1, x2 = 0, x3 = 0;
#pragma unroll
  for (int i = 0; i < 10; ++i) {
    u32 h0 = __umulhi(0xD2511F53u, x0), l0 = 0xD2511F53u * x0, h1 = __umulhi(0xCD9E8D57u, x2), l1 = 0xCD9E8D57u * x2;
    x0 = h1 ^ x1 ^ k0; x1 = l1; x2 = h0 ^ x3 ^ k1; x3 = l0; k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
  }
  return make_uint2(x0, x1);
}
extern "C" __global__ void __launch_bounds__(1024) sample(const float* __restrict__ logits, int* __restrict__ out, double temperature, u64 seed, u32 step, int V) {
  __shared__ double part[32]; __shared__ double total; __shared__ int pick;
  const int r = blockIdx.x, tid = threadIdx.x, lane = tid & 31, w = tid >> 5, warps = blockDim.x >> 5;
  const float* L = logits + (size_t)r * V;
  float top = __int_as_float(0xff800000);
  for (int i = tid; i < V; i += blockDim.x) top = fmaxf(top, L[i]); // @load
  for (int o = 16; o; o >>= 1) top = fmaxf(top, __shfl_xor_sync(~0u, top, o));
  if (lane == 0) part[w] = top; // @partMax
  __syncthreads(); // @sync1
  double m = part[0]; for (int i = 1; i < warps; ++i) m = fmax(m, part[i]); // @readMax
  __syncthreads(); // @sync2
  const int per = (V + blockDim.x - 1) / blockDim.x, b = tid * per, e = min(V, b + per); // @range
  double s = 0; for (int i = b; i < e; ++i) s += exp(((double)L[i] - m) / temperature); // @sum
  double inc = s;
  for (int o = 1; o < 32; o <<= 1) { double t = __shfl_up_sync(~0u, inc, o); if (lane >= o) inc += t; } // @scan
  if (lane == 31) part[w] = inc; // @partSum
  if (tid == 0) pick = V - 1; // @pick
  __syncthreads(); // @sync3
  if (tid == 0) { double a = 0; for (int i = 0; i < warps; ++i) { double t = part[i]; part[i] = a; a += t; } total = a; } // @offsets
  __syncthreads(); // @sync4
  uint2 u = philox((u32)seed, (u32)(seed >> 32), step, r);
  double target = ((((u64)u.x << 32) | u.y) >> 11) * (1.0 / 9007199254740992.0) * total; // @target
  double base = part[w] + inc - s;
  if (target >= base && target < base + s) { double a = base; int i = b; for (; i < e - 1; ++i) { a += exp(((double)L[i] - m) / temperature); if (a > target) break; } atomicMin(&pick, i); } // @min
  __syncthreads(); // @sync5
  if (tid == 0) out[r] = pick; // @result
}
