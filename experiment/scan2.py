"""Noises ranked on invented people: scan2.py WEIGHTS START DATA NUMBER ..."""
from measure46 import *
from pnoise import pnoise
from faceanon.networks.face_painter import PaintingDiscriminator
path, start, name = sys.argv[1], float(sys.argv[2]), sys.argv[3]; numbers = [int(x) for x in sys.argv[4].split(',')]; a, b = map(int, sys.argv[5].split(':')); numbers += list(range(a, b))
m, _ = load_backbone('persona_photo128'); m.eval(); net, shun = network(path); S = m.identities
D = PaintingDiscriminator(16, maps=8); D.load_state_dict(torch.load(W / 'A47_last.pt', weights_only=False)['disc']); D.eval()
data = Data(None, m, name); put = torch.load(W / f'{name}_put.pt', weights_only=False)
g = torch.Generator().manual_seed(4); pick = put['ok'].all(1).nonzero()[:, 0]; pick = pick[torch.randperm(len(pick), generator=g)[:32]]
rows = []; embs = []
for n in numbers:
    nz = torch.from_numpy(shipped_noise()) if n < 0 else pnoise(n); es, odd, dl = [], [], []
    for r in pick.split(8):
        k = 0; lines = put['lines'][r, k].float() / 255; maps = put['maps'][r].float(); maps = torch.cat([maps[:, :1], F.pixel_unshuffle(lines, 4), maps[:, -3:]], 1)
        att = put['attributes'][r, 0]; mask = put['mask'][r]; lat = data.latents[r].float()
        here = (1 - start) * nz + start * put['latents'][r, k].float(); ts = times(start, 3); cond = torch.cat([put['identity'][r, k], att], 1)
        with torch.no_grad():
            for t0, t1 in zip(ts[:-1], ts[1:]):
                with torch.autocast('cpu', torch.bfloat16): v = net(here, here.new_full((len(r),), t0), lat, mask, maps, cond, put['codes_identity'][r] if shun else None).float()
                here = here + (t1 - t0) * v
            z = lat * (1 - mask) + here * mask
            odd.append(m.typical.oddness(z, mask)); dl.append(D(torch.cat([z, mask, F.avg_pool2d(lines, 4)], 1)).float().mean(1))
            es.append(m.bundle.recogniser(m._joined(z, mask, data.image[r].float() / 127.5 - 1).clamp(-1, 1)).float())
    e = torch.cat(es); embs.append(e); rows.append([n, float((e * data.emb[pick]).sum(1).mean()), float(torch.cat(odd).mean()), float(torch.cat(dl).mean())]); print(*[round(x, 3) for x in rows[-1]], flush=True)
torch.save({'rows': rows, 'emb': torch.stack(embs)}, W / 'scan2p.pt')
