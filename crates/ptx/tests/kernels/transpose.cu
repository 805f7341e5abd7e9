// Transpose of f32 through a padded tile.
extern "C" __global__ void __launch_bounds__(256) transpose(const float* __restrict__ x, float* __restrict__ y, int rows, int cols) {
  __shared__ float tile[32][33]; // @tile
  const int c0 = blockIdx.x * 32, r0 = blockIdx.y * 32, tx = threadIdx.x & 31, ty = threadIdx.x >> 5;
  for (int j = ty; j < 32; j += 8)
    if (r0 + j < rows && c0 + tx < cols) tile[j][tx] = x[(size_t)(r0 + j) * cols + c0 + tx]; // @load
  __syncthreads(); // @sync
  for (int j = ty; j < 32; j += 8)
    if (c0 + j < cols && r0 + tx < rows) y[(size_t)(c0 + j) * rows + r0 + tx] = tile[tx][j]; // @store
}
