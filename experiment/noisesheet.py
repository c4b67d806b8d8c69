from measure46 import *
from pnoise import pnoise
path, name, out, seed = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[5]); numbers = [int(x) for x in sys.argv[4].split(',')]
m, _ = load_backbone('persona_photo128'); m.eval(); net, shun = network(path)
data = Data(None, m, name); put = torch.load(W / f'{name}_put.pt', weights_only=False)
g = torch.Generator().manual_seed(seed); pick = put['ok'].all(1).nonzero()[:, 0]; r = pick[torch.randperm(len(pick), generator=g)[:12]]
lines = put['lines'][r, 0].float() / 255; maps = put['maps'][r].float(); maps = torch.cat([maps[:, :1], F.pixel_unshuffle(lines, 4), maps[:, -3:]], 1)
att = put['attributes'][r, 0]; mask = put['mask'][r]; lat = data.latents[r].float(); cond = torch.cat([put['identity'][r, 0], att], 1)
cols = [data.image[r], put['put'][r, 0]]
for n in numbers:
    nz = torch.from_numpy(shipped_noise()) if n < 0 else pnoise(n)
    here = .5 * nz + .5 * put['latents'][r, 0].float(); ts = times(.5, 3)
    with torch.no_grad():
        for a, b in zip(ts[:-1], ts[1:]):
            with torch.autocast('cpu', torch.bfloat16): v = net(here, here.new_full((len(r),), a), lat, mask, maps, cond, put['codes_identity'][r] if shun else None).float()
            here = here + (b - a) * v
        cols.append(to_bytes(m._joined(lat * (1 - mask) + here * mask, mask, data.image[r].float() / 127.5 - 1)))
rows = [np.hstack([c[i].permute(1, 2, 0).numpy()[24:120, 16:112] for c in cols]) for i in range(12)]
head = np.full((18, rows[0].shape[1], 3), 255, np.uint8)
for j, n in enumerate(['orig', 'put'] + numbers): cv2.putText(head, str(n), (j * 96 + 20, 14), cv2.FONT_HERSHEY_SIMPLEX, .5, (0, 0, 0), 1)
x = np.vstack([head] + rows); cv2.imwrite(out, cv2.resize(x, None, fx=1.5, fy=1.5, interpolation=cv2.INTER_CUBIC)[..., ::-1])
