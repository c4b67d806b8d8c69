from data import *
import multiprocessing
torch.set_num_threads(1); cv2.setNumThreads(1)
if __name__ == '__main__':
    paths = sorted(Path('TRAINING/faces2/aligned256').glob('*.jpg'))
    g = np.random.default_rng(3); paths = [paths[i] for i in g.permutation(len(paths))[:520]]
    os.cpu_count = lambda: 1
    v = ex.all_versions(paths, (0, 1)); print(len(v.image), flush=True)
    m = Persona().train(); t = time.time()
    d = Data(v, m, 'learn2'); print(time.time() - t, len(d))
