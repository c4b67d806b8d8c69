from common import *
sys.path.insert(0, 'TRAINING/base/tools/networks')
import store_flow_painter as st
from faceanon.files import load_tensors, save_tensors
from faceanon.packed import unpacked
from faceanon.files import widened
from safetensors.torch import load
s = torch.load(W / 'A47_last.pt', weights_only=False)['ema']; f = {k: v for k, v in load_flow().state_dict().items()}
new = {k.removeprefix('flow.'): v.contiguous() for k, v in s.items() if 'shun' not in k}
def read(p): return {k: v.float() for k, v in widened(unpacked(load(Path(p).read_bytes()), load), Path(p)).items()}
for tag, kw in (('ship', None), ('int8', dict(int8=True)), ('int6', dict(int8=True, steps={k: 31 for k, v in new.items() if v.ndim >= 2 and v.numel() >= 4096})), ('int5', dict(int8=True, steps={k: 15 for k, v in new.items() if v.ndim >= 2 and v.numel() >= 4096}))):
    p = W / f'q_{tag}.safetensors'
    if kw is None: st.store(new, p)
    else: save_tensors(p, new, half=True, huffman=True, **kw)
    q = read(p); num = sum(((q[k] - new[k]) ** 2).sum() for k in new); den = sum(((f[k] - new[k]) ** 2).sum() for k in new); al = sum(((q[k] - f[k]) * (new[k] - f[k])).sum() for k in new) / den
    print(tag, p.stat().st_size / 1e6, 'error / delta', float((num / den).sqrt()), 'of the delta kept', float(al), flush=True)
tot = sum((v ** 2).sum() for v in f.values()); print('delta / weights', float((den / tot).sqrt()))
