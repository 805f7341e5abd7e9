// Router: sigmoid scores, the k best of score + bias by shared atomics, weights normalised, a histogram of the choices.
typedef unsigned int u32; typedef unsigned long long u64;
extern "C" __global__ void __launch_bounds__(256) topk(const float* __restrict__ logits, const float* __restrict__ bias, int* __restrict__ index, float* __restrict__ weight, int* __restrict__ counts, int E, int k) {
  __shared__ u64 best; __shared__ float sum; __shared__ int chosen[8]; __shared__ float score[256];
  const int t = blockIdx.x, e = threadIdx.x;
  float s = 0.f, b = -1e30f;
  if (e < E) { s = 1.f / (1.f + __expf(-logits[(size_t)t * E + e])); b = s + bias[e]; score[e] = s; } // @score
  bool used = e >= E;
  if (e == 0) sum = 0.f;
  for (int i = 0; i < k; ++i) {
    if (e == 0) best = 0; // @reset
    __syncthreads(); // @sync1
    if (!used) {
      u32 u = __float_as_uint(b); u = (u & 0x80000000u) ? ~u : (u | 0x80000000u);
      atomicMax(&best, ((u64)u << 32) | (u32)~e); // @max
    }
    __syncthreads(); // @sync2
    int w = (int)~(u32)best; // @winner
    if (e == w) { used = true; chosen[i] = e; atomicAdd(&sum, s); atomicAdd(&counts[e], 1); } // @take
    __syncthreads(); // @sync3
  }
  if (e < k) { int w = chosen[e]; index[t * k + e] = w; weight[t * k + e] = score[w] / (sum + 1e-20f); } // @write
}
