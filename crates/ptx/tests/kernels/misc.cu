// Local arrays, a call that is not inlined, a switch, the slow paths of the maths library, printf and trap.
extern "C" __device__ int printf(const char*, ...);
__device__ __noinline__ float poly(const float* c, int n, float x) { float r = 0; for (int i = n - 1; i >= 0; --i) r = r * x + c[i]; return r; }
extern "C" __global__ void misc(const float* x, float* y, const int* sel, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return; // @guard
  float buf[16];
  for (int j = 0; j < 16; ++j) buf[j] = x[(i + j) % n] * j; // @fill
  int s = sel[i];
  float r;
  switch (s & 7) {
    case 0: r = buf[s & 15]; break; // @index
    case 1: r = poly(buf, 16, 0.5f); break; // @call
    case 2: r = sinf(buf[3] * 1e5f); break;
    case 3: r = powf(fabsf(buf[2]), 1.5f); break;
    case 4: r = buf[(s >> 3) & 15]; break;
    case 5: r = erff(buf[1]); break;
    case 6: r = tanhf(buf[1]); break;
    default: r = -1;
  }
  if (s == 12345) { printf("bad %d %f\n", i, r); __trap(); } // @trap
  if (i == 3) printf("thread %d of %d: %.3f %s\n", i, n, r, "ok");
  y[i] = r; // @store
}
