import torch, numpy as np
d = torch.load('TRAINING/scan2p.pt', weights_only=False); r = np.array(d['rows']); e = d['emb']
score = (r[:, 3] - r[:, 3].mean()) / r[:, 3].std() - (r[:, 1] - r[:, 1].mean()) / r[:, 1].std(); o = score.argsort()[::-1]
print('mean', r.mean(0), 'sd', r.std(0), 'corr cos D', np.corrcoef(r[:, 1], r[:, 3])[0, 1])
for i in o[:16]: print(int(r[i, 0]), r[i, 1:].round(3), round(score[i], 2))
sim = torch.einsum('and,bnd->ab', e, e).numpy() / e.shape[1]
print('same faces, two noises', sim[~np.eye(len(sim), dtype=bool)].mean(), sim[~np.eye(len(sim), dtype=bool)].std())
# greedy: good, and unlike those already chosen
chosen = [o[0]]
while len(chosen) < 8:
    best = max((i for i in o[:30] if i not in chosen), key=lambda i: score[i] - 25 * max(0, sim[i, chosen].mean() - .6))
    chosen.append(best)
print([int(r[i, 0]) for i in chosen], [round(score[i], 2) for i in chosen]); print(sim[np.ix_(chosen, chosen)].round(2))
