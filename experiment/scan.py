"""How much each of many noises lets the white-box recogniser see of invented people: scan.py WEIGHTS START COUNT DATA"""
from measure46 import *
path, start, count, name = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
m, _ = load_backbone('persona_photo128'); m.eval(); net, shun = network(path); S = m.identities
data = Data(None, m, name); put = torch.load(W / f'{name}_put.pt', weights_only=False)
g = torch.Generator().manual_seed(3); pick = put['ok'].all(1).nonzero()[:, 0]; pick = pick[torch.randperm(len(pick), generator=g)[:40]]
off = torch.zeros(count, len(pick)); embs = []
for n in range(count):
    nz = torch.randn(32, 16, 16, generator=torch.Generator().manual_seed(n)); es = []
    for r in pick.split(8):
        k = n % 2; lines = put['lines'][r, k].float() / 255; maps = put['maps'][r].float(); maps = torch.cat([maps[:, :1], F.pixel_unshuffle(lines, 4), maps[:, -3:]], 1)
        att = put['attributes'][r, 0]; mask = put['mask'][r]; lat = data.latents[r].float()
        here = (1 - start) * nz + start * put['latents'][r, k].float(); ts = times(start, 2); cond = torch.cat([put['identity'][r, k], att], 1)
        with torch.no_grad():
            for a, b in zip(ts[:-1], ts[1:]):
                with torch.autocast('cpu', torch.bfloat16): v = net(here, here.new_full((len(r),), a), lat, mask, maps, cond, put['codes_identity'][r] if shun else None).float()
                here = here + (b - a) * v
            x = m._joined(lat * (1 - mask) + here * mask, mask, data.image[r].float() / 127.5 - 1); e = m.bundle.recogniser(x.clamp(-1, 1)).float(); es.append(e)
    e = torch.cat(es); embs.append(e); off[n] = (e * data.emb[pick]).sum(1)
    if n % 10 == 9: print(n, flush=True)
torch.save({'off': off, 'emb': torch.stack(embs)}, W / f'scan_{path.split(".")[0]}_{start}.pt')
s = off.mean(1); o = s.argsort(); print('mean', s.mean(), 'sd', s.std(), 'best', [(int(i), round(float(s[i]), 3)) for i in o[:12]], 'worst', [(int(i), round(float(s[i]), 3)) for i in o[-4:]])
h = off.shape[1] // 2; a, b = off[:, :h].mean(1), off[:, h:].mean(1); print('halves agree', np.corrcoef(a, b)[0, 1])
